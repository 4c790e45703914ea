//! Sockets whose peer closed the connection and that are still open here.

use super::wording::{groups, most_common};
use super::{LintMatch, Rule, RuleKind, Severity, entries, fds_of};
use crate::{Class, Detail, FdEntry, Snapshot, TcpState};

/// Fewer may just be about to be closed.
const PILE: usize = 5;

pub(super) const RULE: Rule = Rule {
    id: "close-wait-pile",
    kind: RuleKind::Lint,
    severity: Severity::Warning,
    summary: "connections that the peer closed and this process did not",
    cwe: Some(775),
    requirement: "R33",
    fix: Some(
        "close the connection when a read returns 0; in an HTTP client, close or drain the response body on every path",
    ),
};

pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    let held: Vec<_> = entries(snapshot)
        .filter(|entry| entry.class == Class::Tcp(TcpState::CloseWait))
        .collect();
    if held.len() < PILE {
        return Vec::new();
    }
    let mut message = format!(
        "{} connections were closed by the peer and are still open here",
        held.len()
    );
    let peers = peers(&held);
    if !peers.is_empty() {
        message.push_str(": ");
        message.push_str(&groups(&peers, "with "));
    }
    vec![LintMatch::new(message, fds_of(&held))]
}

/// The remote addresses, most common first. Each client of a server uses its own port, so if no
/// address repeats, the host without the port is more useful.
fn peers(held: &[&FdEntry]) -> Vec<(String, usize)> {
    let remotes = || held.iter().filter_map(|entry| remote(entry));
    let by_address = most_common(remotes().map(str::to_owned));
    if by_address.first().is_some_and(|(_, count)| *count > 1) {
        return by_address;
    }
    most_common(remotes().map(|address| {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        host.to_owned()
    }))
}

fn remote(entry: &FdEntry) -> Option<&str> {
    match &entry.detail {
        Detail::Inet(inet) => inet.remote.as_deref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::TcpState::{CloseWait, Established};
    use crate::testing::{radar, snapshot, tcp};

    #[test]
    fn r33_a_pile_names_the_servers_that_hung_up() {
        let mut fds: Vec<_> = (10..14)
            .map(|fd| tcp(fd, CloseWait, Some("10.0.0.7:443")))
            .collect();
        fds.push(tcp(20, CloseWait, Some("10.0.0.8:443")));
        let found = check(&snapshot(fds));
        assert_eq!(
            found[0].message,
            "5 connections were closed by the peer and are still open here: \
             4 with 10.0.0.7:443, 1 with 10.0.0.8:443"
        );
        assert_eq!(found[0].fds, [10, 11, 12, 13, 20]);
    }

    #[test]
    fn r33_clients_on_ports_of_their_own_are_grouped_by_host() {
        let fds = (0..6)
            .map(|n| {
                tcp(
                    10 + n,
                    CloseWait,
                    Some(&format!("[fd00::5]:{}", 40_000 + n)),
                )
            })
            .collect();
        let found = check(&snapshot(fds));
        assert!(
            found[0].message.ends_with(": 6 with [fd00::5]"),
            "{found:?}"
        );
    }

    #[test]
    fn r33_unknown_addresses_are_left_out_of_the_sentence() {
        let fds = (0..5).map(|n| tcp(10 + n, CloseWait, None)).collect();
        let found = check(&snapshot(fds));
        assert!(found[0].message.ends_with("still open here"), "{found:?}");
    }

    #[test]
    fn r33_a_few_on_their_way_out_are_no_pile() {
        let mut fds: Vec<_> = (10..14).map(|fd| tcp(fd, CloseWait, None)).collect();
        fds.extend((20..40).map(|fd| tcp(fd, Established, None)));
        assert!(check(&snapshot(fds)).is_empty());
        assert!(check(&radar(900)).is_empty());
    }
}
