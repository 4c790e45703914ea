//! TCP sockets that the kernel's tables do not list, or no longer list.

use super::wording::numbers;
use super::{LintMatch, Rule, RuleKind, Severity, entries, fds_of};
use crate::{Class, Snapshot, TcpState};

/// A connection attempt or a handover may hold a few for a moment.
const PILE: usize = 5;

pub(super) const RULE: Rule = Rule {
    id: "unbound-socket-pile",
    kind: RuleKind::Lint,
    severity: Severity::Warning,
    summary: "TCP sockets that are not (or no longer) connected and were not closed",
    cwe: Some(775),
    requirement: "R33",
    fix: Some(
        "close the socket when connect fails and after shutdown: shutdown ends the connection, only close frees the descriptor",
    ),
};

pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    let held: Vec<_> = entries(snapshot)
        .filter(|entry| matches!(entry.class, Class::Tcp(TcpState::Unbound | TcpState::Close)))
        .collect();
    if held.len() < PILE {
        return Vec::new();
    }
    let fds = fds_of(&held);
    let message = format!(
        "{} TCP sockets were never connected, or were disconnected on both sides and not closed here ({})",
        fds.len(),
        numbers(&fds)
    );
    vec![LintMatch::new(message, fds)]
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::TcpState::{Close, Established, Unbound, Unknown};
    use crate::testing::{radar, snapshot, tcp};

    #[test]
    fn r33_a_pile_of_dead_sockets_is_reported_with_its_numbers() {
        let mut fds: Vec<_> = (10..14).map(|fd| tcp(fd, Unbound, None)).collect();
        fds.push(tcp(14, Close, None));
        let found = check(&snapshot(fds));
        assert_eq!(found[0].fds, [10, 11, 12, 13, 14]);
        assert!(
            found[0]
                .message
                .starts_with("5 TCP sockets were never connected")
        );
        assert!(found[0].message.ends_with("(10-14)"));
    }

    #[test]
    fn r33_a_few_and_living_ones_are_no_pile() {
        let mut fds: Vec<_> = (10..14).map(|fd| tcp(fd, Unbound, None)).collect();
        fds.extend((20..40).map(|fd| tcp(fd, Established, None)));
        assert!(check(&snapshot(fds)).is_empty());
    }

    #[test]
    fn r33_sockets_whose_state_could_not_be_read_are_no_finding() {
        let fds = (10..40).map(|fd| tcp(fd, Unknown, None)).collect();
        assert!(check(&snapshot(fds)).is_empty());
        assert!(check(&radar(900)).is_empty());
    }
}
