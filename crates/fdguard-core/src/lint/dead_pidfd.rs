//! Handles of processes that have exited.

use super::wording::{groups, most_common, numbers};
use super::{LintMatch, Rule, RuleKind, Severity, entries, fds_of};
use crate::detail::Pidfd;
use crate::units::counted;
use crate::{Detail, FdEntry, Snapshot};

pub(super) const RULE: Rule = Rule {
    id: "dead-pidfd",
    kind: RuleKind::Lint,
    severity: Severity::Warning,
    summary: "process handles (pidfds) whose process has exited",
    cwe: Some(775),
    requirement: "R4",
    fix: Some("close the pidfd as soon as the exit status is collected, on the error path too"),
};

pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    // One is enough: a pidfd becomes readable when its process exits, so the waiter knows.
    let dead: Vec<_> = entries(snapshot)
        .filter(|entry| handle(entry).is_some_and(|pidfd| pidfd.alive == Some(false)))
        .collect();
    if dead.is_empty() {
        return Vec::new();
    }
    let fds = fds_of(&dead);
    let whose = if dead.len() == 1 {
        "its process"
    } else {
        "their processes"
    };
    let mut message = format!(
        "{} ({}) still open after {whose} exited",
        counted(dead.len(), "pidfd"),
        numbers(&fds)
    );
    let commands = most_common(dead.iter().filter_map(|entry| {
        let command = handle(entry)?.command.as_ref()?;
        Some(command.to_lossy().into_owned())
    }));
    if !commands.is_empty() {
        message.push_str(": ");
        message.push_str(&groups(&commands, "× "));
    }
    vec![LintMatch::new(message, fds)]
}

fn handle(entry: &FdEntry) -> Option<&Pidfd> {
    match &entry.detail {
        Detail::Pidfd(pidfd) => Some(pidfd),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::testing::{pidfd, radar, snapshot};

    #[test]
    fn r4_handles_of_ended_processes_are_one_group() {
        let fds = vec![
            pidfd(7, Some(false), Some("npm")),
            pidfd(8, Some(false), None),
            pidfd(9, Some(true), Some("node")),
        ];
        let found = check(&snapshot(fds));
        assert_eq!(
            found[0].message,
            "2 pidfds (7-8) still open after their processes exited: 1 × npm"
        );
        assert_eq!(found[0].fds, [7, 8]);
    }

    #[test]
    fn r4_a_single_one_is_enough() {
        let found = check(&snapshot(vec![pidfd(7, Some(false), None)]));
        assert_eq!(
            found[0].message,
            "1 pidfd (7) still open after its process exited"
        );
    }

    #[test]
    fn r4_live_and_unknown_processes_are_quiet() {
        let fds = vec![pidfd(7, Some(true), None), pidfd(8, None, None)];
        assert!(check(&snapshot(fds)).is_empty());
        assert!(check(&radar(900)).is_empty());
    }
}
