//! Pipes whose other end no process holds.

use super::wording::numbers;
use super::{LintMatch, Rule, RuleKind, Severity, entries};
use crate::detail::PipeEnd;
use crate::units::counted;
use crate::{Class, Detail, Fd, FdEntry, Snapshot};

pub(super) const RULE: Rule = Rule {
    id: "widowed-pipe",
    kind: RuleKind::Lint,
    severity: Severity::Warning,
    summary: "pipe ends whose other end no process holds any more",
    cwe: Some(775),
    requirement: "R48",
    fix: Some(
        "close this end when the child exits or a read returns 0: killing a child does not close the parent's end",
    ),
};

pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    let widows = |end| {
        entries(snapshot)
            .filter(|entry| is_widow(entry, end))
            .map(|entry| entry.fd)
            .collect::<Vec<Fd>>()
    };
    let groups = [
        (
            widows(PipeEnd::Read),
            "pipe read end",
            "reads only return end of file",
        ),
        (
            widows(PipeEnd::Write),
            "pipe write end",
            "the next write raises SIGPIPE or fails with EPIPE",
        ),
    ];
    groups
        .into_iter()
        .filter(|(fds, _, _)| !fds.is_empty())
        .map(|(fds, noun, meaning)| {
            let message = format!(
                "{} ({}) with no process at the other end: {meaning}",
                counted(fds.len(), noun),
                numbers(&fds)
            );
            LintMatch::new(message, fds)
        })
        .collect()
}

/// Named pipes are excluded: a reader that waits for its first writer is how they are meant to
/// work. So is a finished stdin, which every `producer | daemon` leaves behind harmlessly.
fn is_widow(entry: &FdEntry, wanted: PipeEnd) -> bool {
    let Detail::Pipe(pipe) = &entry.detail else {
        return false;
    };
    let finished_stdin = entry.fd == 0 && wanted == PipeEnd::Read;
    entry.class == Class::Pipe
        && pipe.end == Some(wanted)
        && pipe.peer.as_ref().is_some_and(Vec::is_empty)
        && !finished_stdin
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::detail::PipeEnd::{Both, Read, Write};
    use crate::testing::{entry, holder, pipe, radar, snapshot};
    use crate::{Class, Detail};

    #[test]
    fn r48_read_and_write_ends_are_told_apart() {
        let fds = vec![
            pipe(7, Read, Some(vec![])),
            pipe(8, Read, Some(vec![])),
            pipe(9, Write, Some(vec![])),
        ];
        let found = check(&snapshot(fds));
        assert_eq!(
            found[0].message,
            "2 pipe read ends (7-8) with no process at the other end: reads only return end of file"
        );
        assert_eq!(
            found[1].message,
            "1 pipe write end (9) with no process at the other end: \
             the next write raises SIGPIPE or fails with EPIPE"
        );
        assert_eq!(found[1].fds, [9]);
    }

    #[test]
    fn r48_a_pipe_with_somebody_at_the_other_end_is_quiet() {
        let fds = vec![
            pipe(7, Read, Some(vec![holder(99, 1)])),
            pipe(8, Both, Some(vec![])),
        ];
        assert!(check(&snapshot(fds)).is_empty());
    }

    #[test]
    fn r48_not_knowing_the_other_end_is_no_finding() {
        assert!(check(&snapshot(vec![pipe(7, Read, None)])).is_empty());
        assert!(check(&snapshot(vec![entry(7, Class::Pipe)])).is_empty());
        assert!(check(&radar(900)).is_empty());
    }

    #[test]
    fn r48_a_finished_stdin_and_a_waiting_fifo_are_normal() {
        let mut fifo = pipe(7, Read, Some(vec![]));
        fifo.class = Class::Fifo;
        assert!(matches!(fifo.detail, Detail::Pipe(_)));
        let fds = vec![pipe(0, Read, Some(vec![])), fifo];
        assert!(check(&snapshot(fds)).is_empty());
    }
}
