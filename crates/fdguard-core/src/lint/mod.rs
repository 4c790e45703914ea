//! Lints: what looks wrong in a single snapshot, without watching or tracing.
//!
//! To add one: a file beside this one with a `RULE` constant and a `check` function, one line in
//! `LINTS`, one page under `docs/guide/rules/`.

use serde::Serialize;

use crate::rule::{self, Rule, RuleKind, RuleTable};
use crate::{Class, Detail, Fd, FdEntry, Snapshot, TcpState};

mod close_wait_pile;
mod dead_pidfd;
mod deleted_wal;
mod epoll_ghost;
mod fd_number_past_1024;
mod inherited_listener;
mod lock_drop_risk;
mod missing_cloexec;
mod near_soft_limit;
mod several_writers;
mod stdio_slot;
mod unbound_socket_pile;
mod widowed_pipe;
mod wording;

pub use crate::rule::Severity;

/// Finds the descriptors, each group with its sentence. Reports nothing where evidence is missing.
type Check = fn(&Snapshot) -> Vec<LintMatch>;

/// What a check found: a full sentence and the descriptors it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintMatch {
    /// The sentence.
    pub message: String,
    /// The descriptors.
    pub fds: Vec<Fd>,
    /// The severity of this one, if it differs from that of its lint.
    pub severity: Option<Severity>,
}

impl LintMatch {
    /// A match with the severity of its lint.
    #[must_use]
    pub fn new(message: String, fds: Vec<Fd>) -> Self {
        Self {
            message,
            fds,
            severity: None,
        }
    }

    /// The same with another severity.
    #[must_use]
    pub fn at(self, severity: Severity) -> Self {
        Self {
            severity: Some(severity),
            ..self
        }
    }
}

/// A match with the rule that raised it, as reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LintHit {
    /// The rule's id.
    pub rule: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What was found.
    pub message: String,
    /// The descriptors.
    pub fds: Vec<Fd>,
    /// What to do about it.
    pub fix: &'static str,
}

/// Every lint.
const LINTS: RuleTable<Check> = &[
    (close_wait_pile::RULE, close_wait_pile::check),
    (dead_pidfd::RULE, dead_pidfd::check),
    (deleted_wal::RULE, deleted_wal::check),
    (epoll_ghost::RULE, epoll_ghost::check),
    (fd_number_past_1024::RULE, fd_number_past_1024::check),
    (inherited_listener::RULE, inherited_listener::check),
    (lock_drop_risk::RULE, lock_drop_risk::check),
    (missing_cloexec::RULE, missing_cloexec::check),
    (near_soft_limit::RULE, near_soft_limit::check),
    (several_writers::RULE, several_writers::check),
    (stdio_slot::RULE, stdio_slot::check),
    (unbound_socket_pile::RULE, unbound_socket_pile::check),
    (widowed_pipe::RULE, widowed_pipe::check),
];

/// The descriptions of the lints.
pub(crate) fn rules() -> Vec<&'static Rule> {
    rule::descriptions(LINTS)
}

/// Runs every lint, the most severe first. Without a list of descriptors only the count can be
/// judged.
#[must_use]
pub fn check(snapshot: &Snapshot) -> Vec<LintHit> {
    let mut hits: Vec<LintHit> = LINTS
        .iter()
        .flat_map(|(rule, check)| {
            check(snapshot).into_iter().map(|found| LintHit {
                rule: rule.id,
                severity: found.severity.unwrap_or(rule.severity),
                message: found.message,
                fds: found.fds,
                fix: rule.fix.unwrap_or_default(),
            })
        })
        .collect();
    hits.sort_by_key(|hit| std::cmp::Reverse(hit.severity));
    hits
}

/// The listed descriptors; none in the radar tier.
fn entries(snapshot: &Snapshot) -> impl Iterator<Item = &FdEntry> {
    snapshot.fds.iter().flatten()
}

fn fds_of(entries: &[&FdEntry]) -> Vec<Fd> {
    entries.iter().map(|entry| entry.fd).collect()
}

/// Whether it accepts connections.
fn is_listener(entry: &FdEntry) -> bool {
    match &entry.detail {
        Detail::Unix(unix) => unix.state.as_deref() == Some("listening"),
        _ => entry.class == Class::Tcp(TcpState::Listen),
    }
}

#[cfg(test)]
mod tests {
    use super::{Severity, check};
    use crate::testing::{file, pidfd, radar, snapshot, stdio};
    use crate::{Class, Snapshot};

    #[test]
    fn the_gravest_hit_comes_first_whatever_the_order_of_the_table() {
        let mut fds = stdio();
        fds.push(pidfd(7, Some(false), None));
        fds.push(file(4, Class::SqliteWal, "/srv/state.db-wal").deleted());
        let hits = check(&snapshot(fds));
        let rules: Vec<&str> = hits.iter().map(|hit| hit.rule).collect();
        assert_eq!(rules, ["deleted-wal", "dead-pidfd"]);
    }

    #[test]
    fn a_suspicion_may_matter_more_than_its_lint() {
        let mut starved = radar(1000);
        starved.limits.soft = Some(1024);
        let hits = check(&starved);
        assert_eq!(hits[0].rule, "near-soft-limit");
        assert_eq!(hits[0].severity, Severity::Critical);
    }

    #[test]
    fn an_ordinary_daemon_and_a_quiet_radar_raise_nothing() {
        assert_eq!(check(&snapshot(stdio())), []);
        let unknown = Snapshot {
            count: None,
            ..radar(0)
        };
        assert_eq!(check(&unknown), []);
    }
}
