//! The life of a finding: it opens once, is updated, and resolves.
//!
//! A rule is judged at every look and may change its mind; people must not be woken by that. So a
//! finding opens when two judgements agree (one, if it is critical), a rise only when it has lasted
//! another part of its length, stays open until it was not seen for a while, and one that comes
//! back soon is the same finding. Each time that it comes back it must stay away twice as long
//! before it resolves.

mod restored;

use std::collections::HashMap;

use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use fdguard_core::rule::{self, Rule};
use jiff::Timestamp;
use serde::Serialize;

pub(crate) use restored::KeptFinding;

use crate::service::ServiceKey;
use crate::trace_keeper::TraceNote;

/// The most findings that are kept, resolved ones included; further ones are counted.
const MOST: usize = 2000;
/// The longest time that a flapping finding stays open without being seen.
const LONGEST: f64 = 3600.0;
/// An update is worth a notification when the count has grown by this factor.
const GROWN: f64 = 1.5;

/// A rise must last this share of its length once more: a cache that is almost full when the rise
/// is long enough to be a leak stops in this time.
const CONFIRMED: f64 = 0.2;
/// At most this share of the time to the nearest limit is spent on that.
const TIME_LEFT: f64 = 0.25;
/// After this many judgements in a row without it, a finding that has not opened begins anew.
const MISSED: u32 = 2;

/// What makes two findings the same one: neither the process nor the count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct FindingKey {
    /// The service.
    pub service: ServiceKey,
    /// The rule.
    pub rule: String,
    /// The class of descriptors.
    pub class: Option<String>,
    /// What they refer to.
    pub target: Option<String>,
}

impl FindingKey {
    /// The key of a finding about a process of this service.
    #[must_use]
    pub fn of(service: &ServiceKey, finding: &Finding) -> Self {
        Self {
            service: service.clone(),
            rule: finding.rule.clone(),
            class: finding.class.as_ref().map(ToString::to_string),
            target: finding
                .target
                .as_ref()
                .map(|text| text.to_lossy().into_owned()),
        }
    }
}

/// Where a finding is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingState {
    /// Seen once: not yet reported.
    Pending,
    /// Reported.
    Open,
    /// Over.
    Resolved,
    /// Accepted by a person.
    Suppressed,
}

/// A finding and its history.
#[derive(Clone, Debug, Serialize)]
pub struct FindingRecord {
    /// Its number on this host, stable while it opens and resolves.
    pub id: u64,
    /// What it is about.
    #[serde(flatten)]
    pub key: FindingKey,
    /// Where it is in its life.
    pub state: FindingState,
    /// When it was first seen.
    pub opened_at: Timestamp,
    /// When it was last seen.
    pub seen_at: Timestamp,
    /// When it resolved.
    pub resolved_at: Option<Timestamp>,
    /// How often it came back after it had resolved.
    pub flaps: u32,
    /// Why it was accepted.
    pub reason: Option<String>,
    /// The evidence bundle that was kept for it.
    pub evidence: Option<String>,
    /// What a trace found; absent if none was made.
    pub trace: Option<TraceNote>,
    /// As it was last seen.
    pub finding: Finding,
    #[serde(skip)]
    first: f64,
    #[serde(skip)]
    seen: f64,
    #[serde(skip)]
    resolved: f64,
    /// Judgements of its process in a row that did not find it.
    #[serde(skip)]
    missed: u32,
    /// Not over before then, although it was not seen since the start.
    #[serde(skip)]
    kept_until: f64,
    #[serde(skip)]
    notified: (Severity, u64),
}

/// A change that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingChange {
    /// It was reported for the first time.
    Opened,
    /// It became more or less severe, or much larger.
    Updated,
    /// It came back.
    Reopened,
    /// It is over.
    Resolved,
    /// A person accepted it.
    Suppressed,
}

impl FindingChange {
    /// Its word in logs and documents.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Updated => "updated",
            Self::Reopened => "reopened",
            Self::Resolved => "resolved",
            Self::Suppressed => "suppressed",
        }
    }
}

/// Times of the life of findings, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct FindingPace {
    /// A finding that was not seen for this long is over.
    pub resolve_after: f64,
    /// One that returns within this time is the same.
    pub same_within: f64,
    /// Growth that may still stop is reported only after this time: every program that starts
    /// grows.
    pub growth_after: f64,
    /// One that was open before the start is over only after this time.
    pub restored_for: f64,
}

impl Default for FindingPace {
    fn default() -> Self {
        Self {
            resolve_after: 120.0,
            same_within: 3600.0,
            growth_after: 600.0,
            restored_for: 600.0,
        }
    }
}

/// A finding that a person accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedFinding {
    /// Which.
    pub key: FindingKey,
    /// Why.
    pub reason: String,
    /// Until when; absent: for good.
    pub until: Option<Timestamp>,
}

/// All findings of a host.
#[derive(Debug, Default)]
pub struct FindingBook {
    pace: FindingPace,
    records: HashMap<FindingKey, FindingRecord>,
    accepted: Vec<AcceptedFinding>,
    next: u64,
    dropped: u64,
}

impl FindingBook {
    /// An empty book.
    #[must_use]
    pub fn new(pace: FindingPace, first_id: u64) -> Self {
        Self {
            pace,
            next: first_id,
            ..Self::default()
        }
    }

    /// A judgement found this. Information alone is not kept.
    pub fn see(
        &mut self,
        service: &ServiceKey,
        finding: &Finding,
        now: f64,
        at: Timestamp,
    ) -> Option<(FindingChange, u64)> {
        if is_information(finding) {
            return None;
        }
        let key = FindingKey::of(service, finding);
        let accepted = self.accepted_reason(&key, finding, at);
        if !self.records.contains_key(&key) {
            if self.records.len() >= MOST && !self.make_room() {
                self.dropped += 1;
                return None;
            }
            let record = self.begin(key.clone(), finding, now, at);
            self.records.insert(key.clone(), record);
        }
        let pace = self.pace;
        let record = self.records.get_mut(&key)?;
        let change = record.see(finding, accepted, now, at, pace)?;
        Some((change, record.id))
    }

    fn begin(
        &mut self,
        key: FindingKey,
        finding: &Finding,
        now: f64,
        at: Timestamp,
    ) -> FindingRecord {
        self.next += 1;
        FindingRecord {
            id: self.next,
            key,
            state: FindingState::Pending,
            opened_at: at,
            seen_at: at,
            resolved_at: None,
            flaps: 0,
            reason: None,
            evidence: None,
            trace: None,
            finding: finding.clone(),
            first: now,
            seen: now,
            resolved: 0.0,
            missed: 0,
            kept_until: 0.0,
            notified: (finding.severity, finding.count.unwrap_or(0)),
        }
    }

    fn accepted_reason(
        &self,
        key: &FindingKey,
        finding: &Finding,
        at: Timestamp,
    ) -> Option<String> {
        let by_file = finding.cleared.as_ref().map(|note| note.reason.clone());
        by_file.or_else(|| {
            let mut accepted = self.accepted.iter();
            let found =
                accepted.find(|one| one.key == *key && one.until.is_none_or(|until| at <= until));
            found.map(|one| one.reason.clone())
        })
    }

    /// A process of this service is still watched and was not judged anew: what is known stays
    /// true.
    pub fn keep(&mut self, service: &ServiceKey, pid: u32, now: f64) {
        for record in self.records.values_mut() {
            let is_its = record.key.service == *service && record.finding.pid == pid;
            if is_its && matches!(record.state, FindingState::Open | FindingState::Pending) {
                record.seen = now;
            }
        }
    }

    /// A process of this service was judged: what was not seen now begins anew if it returns.
    pub fn settle(&mut self, service: &ServiceKey, pid: u32, now: f64) {
        for record in self.records.values_mut() {
            let is_its = record.key.service == *service && record.finding.pid == pid;
            record.missed += u32::from(is_its && record.seen < now);
        }
    }

    /// Time has passed: resolves what was not seen for long, and forgets what is long over.
    pub fn advance(&mut self, now: f64, at: Timestamp) -> Vec<(FindingChange, u64)> {
        let mut changes = Vec::new();
        let pace = self.pace;
        for record in self.records.values_mut() {
            if record.is_over(now, pace) {
                record.state = FindingState::Resolved;
                record.resolved_at = Some(at);
                record.resolved = now;
                changes.push((FindingChange::Resolved, record.id));
            }
        }
        self.records.retain(|_, record| !record.is_stale(now, pace));
        changes.sort_by_key(|(_, id)| *id);
        changes
    }

    /// A person accepts a finding.
    pub fn accept(
        &mut self,
        id: u64,
        reason: &str,
        until: Option<Timestamp>,
    ) -> Option<AcceptedFinding> {
        let record = self.records.values_mut().find(|record| record.id == id)?;
        record.state = FindingState::Suppressed;
        record.reason = Some(reason.to_owned());
        let accepted = AcceptedFinding {
            key: record.key.clone(),
            reason: reason.to_owned(),
            until,
        };
        self.restore(accepted.clone());
        Some(accepted)
    }

    /// Accepted before the start.
    pub fn restore(&mut self, accepted: AcceptedFinding) {
        self.accepted.retain(|one| one.key != accepted.key);
        self.accepted.push(accepted);
    }

    /// What people accepted.
    pub(crate) fn accepted(&self) -> &[AcceptedFinding] {
        &self.accepted
    }

    /// Notes the bundle of a finding.
    pub fn attach_evidence(&mut self, id: u64, path: &str) {
        if let Some(record) = self.records.values_mut().find(|record| record.id == id) {
            record.evidence = Some(path.to_owned());
        }
    }

    /// Notes the trace of a finding.
    pub(crate) fn attach_trace(&mut self, id: u64, note: TraceNote) {
        if let Some(record) = self.records.values_mut().find(|record| record.id == id) {
            record.trace = Some(note);
        }
    }

    /// Drops the longest resolved one.
    fn make_room(&mut self) -> bool {
        let resolved = self.records.iter();
        let resolved = resolved.filter(|(_, record)| record.state == FindingState::Resolved);
        let oldest = resolved.min_by(|a, b| a.1.resolved.total_cmp(&b.1.resolved));
        let Some(key) = oldest.map(|(key, _)| key.clone()) else {
            return false;
        };
        self.records.remove(&key).is_some()
    }

    /// Everything that was reported, and what is accepted, by number.
    #[must_use]
    pub fn records(&self) -> Vec<&FindingRecord> {
        let mut all: Vec<&FindingRecord> = self
            .records
            .values()
            .filter(|record| record.state != FindingState::Pending)
            .collect();
        all.sort_by_key(|record| record.id);
        all
    }

    /// One of them.
    #[must_use]
    pub fn record(&self, id: u64) -> Option<&FindingRecord> {
        self.records.values().find(|record| record.id == id)
    }

    /// Findings that had no room.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl FindingRecord {
    fn see(
        &mut self,
        finding: &Finding,
        accepted: Option<String>,
        now: f64,
        at: Timestamp,
        pace: FindingPace,
    ) -> Option<FindingChange> {
        let was_away = now - self.resolved;
        let needed = needed_time(finding, pace);
        let is_gone = now - self.seen > pace.resolve_after
            || (self.missed >= MISSED && finding.rule != "growth");
        if self.state == FindingState::Pending && is_gone {
            // What was seen long ago does not confirm this.
            self.first = now;
            self.opened_at = at;
        }
        self.seen = now;
        self.seen_at = at;
        self.missed = 0;
        self.kept_until = 0.0;
        self.finding = finding.clone();
        if let Some(reason) = accepted {
            self.reason = Some(reason);
            let was_open = self.state == FindingState::Open;
            self.state = FindingState::Suppressed;
            return was_open.then_some(FindingChange::Suppressed);
        }
        let known_for = now - self.first;
        let is_certain = match finding.severity {
            Severity::Critical => known_for >= needed,
            _ => known_for > 0.0 && known_for >= needed,
        };
        match self.state {
            FindingState::Pending if is_certain => {
                self.notify(FindingState::Open, FindingChange::Opened)
            }
            FindingState::Pending => None,
            // The acceptance has expired.
            FindingState::Suppressed => {
                self.reason = None;
                self.notify(FindingState::Open, FindingChange::Opened)
            }
            FindingState::Resolved => {
                self.resolved_at = None;
                if was_away <= pace.same_within {
                    self.flaps += 1;
                    return self.notify(FindingState::Open, FindingChange::Reopened);
                }
                self.opened_at = at;
                self.notify(FindingState::Open, FindingChange::Opened)
            }
            FindingState::Open if self.is_news() => {
                self.notify(FindingState::Open, FindingChange::Updated)
            }
            FindingState::Open => None,
        }
    }

    fn notify(&mut self, state: FindingState, change: FindingChange) -> Option<FindingChange> {
        self.state = state;
        self.notified = (self.finding.severity, self.finding.count.unwrap_or(0));
        Some(change)
    }

    fn is_news(&self) -> bool {
        let (severity, count) = self.notified;
        let now = self.finding.count.unwrap_or(0);
        self.finding.severity != severity || now as f64 > count as f64 * GROWN + 1.0
    }

    fn is_over(&self, now: f64, pace: FindingPace) -> bool {
        let damped = pace.resolve_after * f64::from(1_u32 << self.flaps.min(10));
        let patience = damped.min(LONGEST.max(pace.resolve_after));
        let is_unseen = now - self.seen > patience && now > self.kept_until;
        self.state == FindingState::Open && is_unseen
    }

    /// Whether nothing would be lost without it.
    fn is_stale(&self, now: f64, pace: FindingPace) -> bool {
        match self.state {
            FindingState::Pending | FindingState::Suppressed => now - self.seen > pace.same_within,
            FindingState::Resolved => now - self.resolved > 24.0 * pace.same_within,
            FindingState::Open => false,
        }
    }
}

/// How long a finding must have been seen before it opens: what grows may still stop.
fn needed_time(finding: &Finding, pace: FindingPace) -> f64 {
    match (finding.rule.as_str(), finding.grown, finding.rate_per_min) {
        ("growth", _, _) if finding.severity != Severity::Critical => pace.growth_after,
        (_, Some(grown), Some(rate)) if grown > 0 && rate > 0.0 => {
            let length = grown as f64 / rate * 60.0;
            let walls = finding.walls.iter().map(|wall| wall.soonest_seconds);
            let left = walls.fold(f64::INFINITY, f64::min).max(0.0);
            (CONFIRMED * length).min(TIME_LEFT * left)
        }
        _ => 0.0,
    }
}

/// Whether a finding only informs. One that the file accepts has that severity, too, and is kept
/// with its reason.
fn is_information(finding: &Finding) -> bool {
    let counts = |rule: &Rule| rule.severity > Severity::Info;
    let is_accepted = finding.cleared.is_some() && rule::find(&finding.rule).is_some_and(counts);
    finding.severity == Severity::Info && !is_accepted
}

#[cfg(test)]
#[path = "finding_book_tests.rs"]
mod tests;
