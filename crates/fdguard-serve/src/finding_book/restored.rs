//! Findings that were reported before fdguard serve was started again: they keep their numbers,
//! and nobody is told of them a second time.

use fdguard_core::finding::Finding;
use jiff::Timestamp;

use super::{FindingBook, FindingKey, FindingRecord, FindingState, MOST};
use crate::store::Attachments;

/// A finding as the history has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeptFinding {
    pub(crate) id: u64,
    pub(crate) key: FindingKey,
    pub(crate) state: FindingState,
    pub(crate) opened_at: Timestamp,
    /// When it was reported last.
    pub(crate) told_at: Timestamp,
    pub(crate) flaps: u32,
    /// As far as it was written down.
    pub(crate) finding: Finding,
    pub(crate) attached: Attachments,
}

impl KeptFinding {
    /// The record of a finding that the book no longer has.
    pub(crate) fn into_record(self) -> FindingRecord {
        let is_resolved = self.state == FindingState::Resolved;
        let count = self.finding.count.unwrap_or(0);
        FindingRecord {
            id: self.id,
            key: self.key,
            state: self.state,
            opened_at: self.opened_at,
            seen_at: self.told_at,
            resolved_at: is_resolved.then_some(self.told_at),
            flaps: self.flaps,
            reason: None,
            evidence: self.attached.evidence,
            trace: self.attached.trace,
            notified: (self.finding.severity, count),
            finding: self.finding,
            first: 0.0,
            seen: 0.0,
            resolved: 0.0,
            missed: 0,
            kept_until: 0.0,
        }
    }
}

impl FindingBook {
    /// Goes on with a finding of an earlier start. One that is open waits longer than others until
    /// it resolves: a watch begins anew, and needs time to judge. After what is accepted.
    pub(crate) fn restore_finding(&mut self, kept: KeptFinding, at: Timestamp) {
        if self.records.len() >= MOST {
            return;
        }
        let accepted = self.accepted.iter().find(|one| one.key == kept.key);
        let reason = accepted.map(|one| one.reason.clone());
        let (key, id, told_at) = (kept.key.clone(), kept.id, kept.told_at);
        let mut record = kept.into_record();
        record.reason = reason.filter(|_| record.state == FindingState::Suppressed);
        // Times begin with this start. The clock may have been set back since.
        record.resolved = told_at.duration_since(at).as_secs_f64().min(0.0);
        record.kept_until = self.pace.restored_for;
        if !record.is_stale(0.0, self.pace) {
            self.next = self.next.max(id);
            self.records.insert(key, record);
        }
    }
}
