//! Compares the entries with the running processes. The judgement is pure; no process is signalled.

use fdguard_proc::ProcessId;
use fdguard_proc::process::Liveness;
use jiff::Timestamp;
use serde::Serialize;

use super::row::{Kind, RegistryRow};
use super::state::RowState;

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReconcileReport {
    /// When.
    pub at: Timestamp,
    /// Whether this was a dry run.
    pub dry_run: bool,
    /// Entries that were ended by the comparison, or would be.
    pub changed: Vec<ChangedRow>,
    /// Entries that need attention and were left as they are.
    pub left: Vec<LeftoverRow>,
    /// Entries whose processes could not be examined.
    pub unknown: Vec<LeftoverRow>,
    /// Entries that match the running processes.
    pub unchanged: usize,
    /// Entries that another process changed at the same moment.
    pub changed_meanwhile: usize,
}

/// An entry that the comparison ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedRow {
    /// Which.
    pub id: String,
    /// What it is.
    pub kind: Kind,
    /// Its previous state.
    pub from: RowState,
    /// `process_gone`, `host_gone` or `closing_owner_gone`.
    pub reason: &'static str,
}

/// An entry that was left unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftoverRow {
    /// Which.
    pub id: String,
    /// What it is.
    pub kind: Kind,
    /// State of the entry.
    pub state: RowState,
    /// `orphaned`, `abandoned`, `not_seen` or `nothing_to_judge_by`.
    pub reason: &'static str,
}

/// What to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    End(&'static str),
    Leave(&'static str),
    Unknown(&'static str),
}

/// Judges an entry that has not ended.
pub(super) fn judge(row: &RegistryRow, alive: &dyn Fn(&ProcessId) -> Liveness) -> Verdict {
    let mut process = row.process.as_ref().map(alive);
    let host = row.host.as_ref().map(alive);
    // A keeper that outlives its host has been stopped by a program: its processes exist as long as
    // it does.
    if host == Some(Liveness::Gone) && row.keeper.as_ref().map(alive) == Some(Liveness::Alive) {
        process = Some(Liveness::Alive);
    }
    match &row.owner {
        Some(owner) => closing(alive(&owner.process), process, host),
        None => running(row.kind, process, host),
    }
}

fn running(kind: Kind, process: Option<Liveness>, host: Option<Liveness>) -> Verdict {
    match (process, host) {
        (Some(Liveness::Gone), _) if kind == Kind::Host => Verdict::End("host_gone"),
        (Some(Liveness::Gone), _) => Verdict::End("process_gone"),
        // It is running without a keeper: the cleanup has to end it and then record that.
        (Some(Liveness::Alive), Some(Liveness::Gone)) => Verdict::Leave("orphaned"),
        (Some(Liveness::Alive), _) | (None, Some(Liveness::Alive)) => Verdict::Keep,
        (None, Some(Liveness::Gone)) => Verdict::End("host_gone"),
        (Some(Liveness::Unknown), _) | (None, Some(Liveness::Unknown)) => {
            Verdict::Unknown("not_seen")
        }
        (None, None) => Verdict::Unknown("nothing_to_judge_by"),
    }
}

fn closing(owner: Liveness, process: Option<Liveness>, host: Option<Liveness>) -> Verdict {
    match (owner, process, host) {
        (Liveness::Alive, ..) => Verdict::Keep,
        (Liveness::Unknown, ..) => Verdict::Unknown("not_seen"),
        (Liveness::Gone, Some(Liveness::Gone), _)
        | (Liveness::Gone, None, None | Some(Liveness::Gone)) => Verdict::End("closing_owner_gone"),
        // Something is left: the next closer takes over.
        (Liveness::Gone, ..) => Verdict::Leave("abandoned"),
    }
}

/// Decides about all entries before anything is changed.
pub(super) fn plan(
    rows: &[RegistryRow],
    at: Timestamp,
    dry_run: bool,
    alive: &dyn Fn(&ProcessId) -> Liveness,
) -> ReconcileReport {
    let mut report = ReconcileReport {
        at,
        dry_run,
        changed: Vec::new(),
        left: Vec::new(),
        unknown: Vec::new(),
        unchanged: 0,
        changed_meanwhile: 0,
    };
    for row in rows {
        let left = |reason| LeftoverRow {
            id: row.id.clone(),
            kind: row.kind,
            state: row.state,
            reason,
        };
        match judge(row, alive) {
            Verdict::Keep => report.unchanged += 1,
            Verdict::End(reason) => report.changed.push(ChangedRow {
                id: row.id.clone(),
                kind: row.kind,
                from: row.state,
                reason,
            }),
            Verdict::Leave(reason) => report.left.push(left(reason)),
            Verdict::Unknown(reason) => report.unknown.push(left(reason)),
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r51_what_runs_is_judged_by_its_process_and_then_by_its_host() {
        use Liveness::{Alive as Lives, Gone, Unknown};
        let cases = [
            (Some(Gone), Some(Lives), Verdict::End("process_gone")),
            (Some(Gone), None, Verdict::End("process_gone")),
            (Some(Lives), Some(Lives), Verdict::Keep),
            (Some(Lives), None, Verdict::Keep),
            (Some(Lives), Some(Gone), Verdict::Leave("orphaned")),
            (Some(Unknown), Some(Gone), Verdict::Unknown("not_seen")),
            (None, Some(Lives), Verdict::Keep),
            (None, Some(Gone), Verdict::End("host_gone")),
            (None, Some(Unknown), Verdict::Unknown("not_seen")),
            (None, None, Verdict::Unknown("nothing_to_judge_by")),
        ];
        for (process, host, expected) in cases {
            assert_eq!(
                running(Kind::Session, process, host),
                expected,
                "{process:?} {host:?}"
            );
        }
        let host = running(Kind::Host, Some(Gone), None);
        assert_eq!(host, Verdict::End("host_gone"));
    }

    #[test]
    fn what_a_keeper_keeps_that_outlived_its_host_is_not_gone_with_its_program() {
        let identity = |pid| ProcessId {
            boot: "3f2a9c04-0b1d-4e5f-8a6b-00c7d8e9fa0b".parse().unwrap(),
            pid,
            start: 1,
        };
        let row = RegistryRow {
            id: "s1".to_owned(),
            kind: Kind::Session,
            client: None,
            state: RowState::Running,
            owner: None,
            reason: None,
            version: 1,
            process: Some(identity(1)),
            host: Some(identity(2)),
            keeper: Some(identity(3)),
            started_at: Timestamp::UNIX_EPOCH,
            ended_at: None,
            files: Vec::new(),
            receipt: None,
        };
        let lives = |living: &'static [u32]| {
            move |identity: &ProcessId| {
                if living.contains(&identity.pid) {
                    Liveness::Alive
                } else {
                    Liveness::Gone
                }
            }
        };
        assert_eq!(judge(&row, &lives(&[3])), Verdict::Leave("orphaned"));
        assert_eq!(judge(&row, &lives(&[])), Verdict::End("process_gone"));
        assert_eq!(judge(&row, &lives(&[2, 3])), Verdict::End("process_gone"));
    }

    #[test]
    fn r51_what_is_being_closed_waits_for_a_living_owner() {
        use Liveness::{Alive as Lives, Gone, Unknown};
        for process in [None, Some(Lives), Some(Gone), Some(Unknown)] {
            for host in [None, Some(Lives), Some(Gone), Some(Unknown)] {
                assert_eq!(closing(Lives, process, host), Verdict::Keep);
                let unseen = closing(Unknown, process, host);
                assert_eq!(unseen, Verdict::Unknown("not_seen"));
                let ends = process == Some(Gone)
                    || (process.is_none() && (host.is_none() || host == Some(Gone)));
                let expected = if ends {
                    Verdict::End("closing_owner_gone")
                } else {
                    Verdict::Leave("abandoned")
                };
                assert_eq!(
                    closing(Gone, process, host),
                    expected,
                    "{process:?} {host:?}"
                );
            }
        }
    }
}
