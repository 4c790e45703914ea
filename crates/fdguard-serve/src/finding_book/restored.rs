//! Findings that were reported before fdguard serve was started again: they keep their numbers,
//! and nobody is told of them a second time.

use fdguard_core::finding::Finding;
use jiff::Timestamp;

use super::{FindingBook, FindingKey, FindingRecord, FindingState, MOST};

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
        let is_resolved = kept.state == FindingState::Resolved;
        let count = kept.finding.count.unwrap_or(0);
        let record = FindingRecord {
            id: kept.id,
            key: kept.key.clone(),
            state: kept.state,
            opened_at: kept.opened_at,
            seen_at: kept.told_at,
            resolved_at: is_resolved.then_some(kept.told_at),
            flaps: kept.flaps,
            reason: reason.filter(|_| kept.state == FindingState::Suppressed),
            evidence: None,
            trace: None,
            notified: (kept.finding.severity, count),
            finding: kept.finding,
            first: 0.0,
            seen: 0.0,
            // Times begin with this start. The clock may have been set back since.
            resolved: kept.told_at.duration_since(at).as_secs_f64().min(0.0),
            missed: 0,
            kept_until: self.pace.restored_for,
        };
        if !record.is_stale(0.0, self.pace) {
            self.next = self.next.max(kept.id);
            self.records.insert(kept.key, record);
        }
    }
}
