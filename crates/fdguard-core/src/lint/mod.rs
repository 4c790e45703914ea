//! Lints: what looks wrong in a single snapshot, without watching or tracing.
//!
//! To add one: a file beside this one with a `LINT` constant, one line in [`LINTS`], one page
//! under `docs/guide/rules/`.

use serde::{Deserialize, Serialize};

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

/// How much a lint matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Information.
    Info,
    /// Will cause trouble some day.
    Warning,
    /// Causes trouble now.
    Critical,
}

/// One rule over a snapshot.
#[derive(Debug)]
pub struct Lint {
    /// Name in JSON, on the command line and of its page in the guide.
    pub id: &'static str,
    /// How much it matters, unless a single suspicion says otherwise.
    pub severity: Severity,
    /// One line: what it looks for.
    pub summary: &'static str,
    /// Weakness class, where one fits.
    pub cwe: Option<u16>,
    /// The requirement it answers.
    pub requirement: &'static str,
    /// What to do about it.
    pub fix: &'static str,
    /// Finds the descriptors, each group with its sentence. Silence where evidence is missing.
    pub check: fn(&Snapshot) -> Vec<Suspicion>,
}

/// What a check found: a full sentence and the descriptors it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// The sentence.
    pub message: String,
    /// The descriptors.
    pub fds: Vec<Fd>,
    /// How much this one matters, where that differs from its lint.
    pub severity: Option<Severity>,
}

impl Suspicion {
    /// A suspicion that matters as much as its lint does.
    #[must_use]
    pub fn new(message: String, fds: Vec<Fd>) -> Self {
        Self {
            message,
            fds,
            severity: None,
        }
    }

    /// The same, mattering more or less than its lint.
    #[must_use]
    pub fn at(self, severity: Severity) -> Self {
        Self {
            severity: Some(severity),
            ..self
        }
    }
}

/// A suspicion with the rule that raised it, as it is reported.
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

/// Every lint: the one table that `--list-rules`, JSON and the guide read.
pub const LINTS: &[Lint] = &[
    close_wait_pile::LINT,
    dead_pidfd::LINT,
    deleted_wal::LINT,
    epoll_ghost::LINT,
    fd_number_past_1024::LINT,
    inherited_listener::LINT,
    lock_drop_risk::LINT,
    missing_cloexec::LINT,
    near_soft_limit::LINT,
    several_writers::LINT,
    stdio_slot::LINT,
    unbound_socket_pile::LINT,
    widowed_pipe::LINT,
];

/// Runs every lint, the gravest first. Without a list of descriptors only the count can be judged.
#[must_use]
pub fn check(snapshot: &Snapshot) -> Vec<LintHit> {
    let mut hits: Vec<LintHit> = LINTS
        .iter()
        .flat_map(|lint| {
            (lint.check)(snapshot).into_iter().map(|found| LintHit {
                rule: lint.id,
                severity: found.severity.unwrap_or(lint.severity),
                message: found.message,
                fds: found.fds,
                fix: lint.fix,
            })
        })
        .collect();
    hits.sort_by_key(|hit| std::cmp::Reverse(hit.severity));
    hits
}

/// The descriptors that were seen; none in the radar tier.
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
