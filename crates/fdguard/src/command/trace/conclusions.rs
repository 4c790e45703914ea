//! The verdict of every traced process from its lifetimes, which replaces the one from sampling.

use std::collections::HashMap;
use std::time::Duration;

use fdguard_core::diagnosis::{Diagnosis, ProcessDiagnosis, ReleasedAtEnd};
use fdguard_core::evidence::Curves;
use fdguard_core::finding::Finding;
use fdguard_core::judge::Verdict;
use fdguard_core::lifetimes::Lifetime;
use fdguard_core::lifetimes::report::{Conclusion, SiteReport, TracedSubject};
use fdguard_core::rule::RuleSettings;
use fdguard_core::snapshot::Limits;
use fdguard_core::watch::{Watch, WatchedProcess};
use fdguard_core::{Pid, Text};
use fdguard_trace::{Site, TracedProcess, monotonic};
use jiff::{SignedDuration, Timestamp};

use super::aggregate::{is_go, members};
use super::names::FdNames;
use crate::report::trace::ProcessSites;

/// Rules about the course of counts: for a traced process the lifetimes are more precise.
const BY_COUNT: &[&str] = &["leak", "growth", "plateau"];

/// What is known of the processes of a trace.
pub(super) struct Material<'a> {
    pub(super) watch: Option<&'a Watch>,
    pub(super) processes: &'a [TracedProcess],
    pub(super) names: &'a FdNames,
    pub(super) settings: &'a RuleSettings,
}

impl Material<'_> {
    /// Adds the conclusions from lifetimes to a diagnosis from outside looks; returns the sites of
    /// each process.
    pub(super) fn conclude(&self, diagnosis: &mut Diagnosis) -> Vec<ProcessSites> {
        let root = diagnosis.process.pid;
        let mut sites = Vec::new();
        let mut shown_sites = Vec::new();
        let mut released: Option<(Pid, ReleasedAtEnd)> = None;
        for process in self.processes {
            let conclusion = self.conclusion(process);
            if let Some(release) = conclusion.release
                && (released.is_none() || process.pid == root)
            {
                let at = seconds_after(process.began, release.at);
                let count = release.count;
                let at = wall_time(at);
                released = Some((process.pid, ReleasedAtEnd { count, at }));
            }
            // Of a process's earlier program, only leaks are of interest.
            let is_latest = self.is_latest(process);
            let shown = conclusion.sites.iter();
            let is_shown = |one: &&SiteReport| is_latest || one.verdict == Verdict::Leaking;
            sites.extend(shown.filter(is_shown).cloned());
            if is_latest {
                shown_sites.push(self.process_sites(process));
            }
            self.overrule(diagnosis, process, conclusion);
        }
        let peak = self.latest(root).map(|process| process.peak);
        diagnosis.peak = peak.map(|peak| peak.count);
        diagnosis.peak_at = peak.map(|peak| wall_time(peak.at));
        diagnosis.released_at_end = released.map(|(_, released)| released);
        sites.sort_by_key(|site| std::cmp::Reverse(site.verdict));
        diagnosis.sites = Some(sites);
        self.set_verdict(diagnosis);
        shown_sites
    }

    /// Sets the overall verdict and sorts the findings, the most severe first.
    fn set_verdict(&self, diagnosis: &mut Diagnosis) {
        let everybody = || diagnosis.processes.iter().chain(&diagnosis.predecessors);
        let findings = everybody().flat_map(|opinion| opinion.findings.clone());
        let mut findings: Vec<Finding> = findings.collect();
        findings.sort_by_key(|one| std::cmp::Reverse((one.severity, one.count)));
        let verdict = everybody().map(|opinion| opinion.verdict).max();
        diagnosis.findings = findings;
        diagnosis.verdict = verdict.unwrap_or(Verdict::Unknown);
    }

    /// The conclusion from the lifetimes of a process.
    pub(super) fn conclusion(&self, process: &TracedProcess) -> Conclusion {
        let subject = self.subject(process.pid);
        let limits = subject.map(|one| one.timeline.limits());
        TracedSubject {
            pid: process.pid,
            comm: Text::from(process.comm.as_str()),
            sites: &process.sites,
            name: &|one: &Lifetime| self.names.name(process, one),
            limit: limits.and_then(|limits| limits.soft),
            count: process.count,
            until: seconds(process.began, process.until),
            settings: self.settings,
        }
        .conclude()
    }

    fn subject(&self, pid: Pid) -> Option<&WatchedProcess> {
        let mut subjects = self.watch?.subjects();
        subjects.find(|one| one.process.pid == pid)
    }

    fn latest(&self, pid: Pid) -> Option<&TracedProcess> {
        let of = self.processes.iter().filter(|one| one.pid == pid);
        of.max_by_key(|one| one.began)
    }

    fn is_latest(&self, process: &TracedProcess) -> bool {
        self.latest(process.pid).map(|one| one.began) == Some(process.began)
    }

    /// Replaces the opinion from outside looks with the conclusion. Descriptors whose open the
    /// library did not see keep the outside opinion.
    fn overrule(&self, diagnosis: &mut Diagnosis, process: &TracedProcess, by: Conclusion) {
        let subject = self.subject(process.pid);
        let opinion = diagnosis.processes.iter_mut();
        let opinion = opinion.rev().find(|one| one.pid == process.pid);
        let Some(opinion) = opinion else {
            if !by.findings.is_empty() || process.pid == diagnosis.process.pid {
                diagnosis.processes.push(unwatched(process, by));
            }
            return;
        };
        if !self.is_latest(process) {
            opinion.verdict = opinion.verdict.max(by.verdict);
            opinion.findings.extend(by.findings);
            return;
        }
        let is_unseen = |finding: &Finding| {
            let fds = subject.map(|one| members(&one.timeline, finding));
            let fds = fds.unwrap_or_default();
            let unseen = fds.iter().filter(|fd| !process.knows(**fd)).count();
            finding.rule != "plateau" && unseen * 2 > fds.len()
        };
        opinion
            .findings
            .retain(|one| !BY_COUNT.contains(&one.rule.as_str()) || is_unseen(one));
        let is_left_to_looks = opinion
            .findings
            .iter()
            .any(|one| BY_COUNT.contains(&one.rule.as_str()) && one.cleared.is_none());
        let looked = match is_left_to_looks {
            true => opinion.verdict,
            false => opinion.verdict.min(Verdict::Bounded),
        };
        opinion.verdict = looked.max(by.verdict);
        opinion.findings.splice(0..0, by.findings);
        if !process.comm.is_empty() {
            opinion.comm = Text::from(process.comm.as_str());
        }
    }

    /// The sites of a process when its end began, for the report and its pictures.
    fn process_sites(&self, process: &TracedProcess) -> ProcessSites {
        let subject = self.subject(process.pid);
        let sites: Vec<Site> = process
            .sites
            .iter()
            .filter_map(Site::of_lifetimes)
            .collect();
        let survivors = process.sites.iter().flat_map(|site| {
            let shown = site.paths.iter();
            shown.flat_map(|path| path.judgement.survivors.iter().chain(&path.history.live))
        });
        let mut open = HashMap::new();
        for one in survivors {
            if let (Some(class), target) = self.names.name(process, one) {
                open.insert(one.fd, (class, target.unwrap_or_else(|| Text::from(""))));
            }
        }
        let listed = subject.map(|one| one.timeline.live().iter());
        let unknown = listed.map(|live| {
            let is_unknown = |fd: &u32| !process.knows(*fd) && !process.inherited.contains(fd);
            live.map(|(fd, _)| fd).filter(is_unknown).count()
        });
        ProcessSites {
            pid: process.pid,
            comm: process.comm.clone(),
            sites,
            open,
            now: process.until,
            inherited: process.inherited.len(),
            unknown: unknown.unwrap_or(0),
            curves: subject.map(|one| Curves::of(&one.timeline)),
            is_go: subject.is_some_and(is_go),
        }
    }
}

/// A process that was never looked at from outside.
fn unwatched(process: &TracedProcess, by: Conclusion) -> ProcessDiagnosis {
    ProcessDiagnosis {
        pid: process.pid,
        comm: Text::from(process.comm.as_str()),
        verdict: by.verdict,
        samples: 0,
        watched_seconds: seconds(process.began, process.until),
        baseline: None,
        last: Some(process.count),
        highest: None,
        limits: Limits::default(),
        walls: Vec::new(),
        classes: None,
        findings: by.findings,
    }
}

fn seconds(from: u64, to: u64) -> f64 {
    Duration::from_nanos(to.saturating_sub(from)).as_secs_f64()
}

fn seconds_after(began: u64, seconds: f64) -> u64 {
    let passed = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    began.saturating_add(u64::try_from(passed.as_nanos()).unwrap_or(0))
}

/// Converts a time of the monotonic clock to the time of day.
fn wall_time(at: u64) -> Timestamp {
    let ago = Duration::from_nanos(monotonic().saturating_sub(at));
    let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::ZERO);
    let now = Timestamp::now();
    now.checked_sub(ago).unwrap_or(now)
}
