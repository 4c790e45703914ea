//! Listening sockets that another process has open as well.

use std::collections::BTreeSet;

use super::wording::numbers;
use super::{LintMatch, Rule, RuleKind, Severity, entries, is_listener};
use crate::{FdEntry, Pid, Snapshot};

pub(super) const RULE: Rule = Rule {
    id: "inherited-listener",
    kind: RuleKind::Lint,
    severity: Severity::Warning,
    summary: "listening sockets that another process has open as well",
    cwe: Some(403),
    requirement: "R23",
    fix: Some(
        "open listeners with SOCK_CLOEXEC; pass them on only on purpose (socket activation, pre-fork workers)",
    ),
};

pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    entries(snapshot)
        .filter(|entry| is_listener(entry))
        .filter_map(|entry| suspicion(entry, snapshot.process.pid))
        .collect()
}

fn suspicion(entry: &FdEntry, own: Pid) -> Option<LintMatch> {
    let pids: BTreeSet<Pid> = entry
        .shared_with
        .iter()
        .map(|holder| holder.pid)
        .filter(|pid| *pid != own)
        .collect();
    if pids.is_empty() {
        return None;
    }
    let pids: Vec<Pid> = pids.into_iter().collect();
    let message = format!(
        "listener {} ({}) is also open in pid {}: the port stays in use until every holder closes it; \
         expected for pre-fork workers, a mistake in any other child",
        entry.fd,
        entry.target.to_lossy(),
        numbers(&pids)
    );
    let found = LintMatch::new(message, vec![entry.fd]);
    // With close-on-exec a started program cannot have got it by accident: that leaves fork without
    // exec, or a deliberate hand-over. It is only info.
    Some(if entry.cloexec == Some(false) {
        found
    } else {
        found.at(Severity::Info)
    })
}

#[cfg(test)]
mod tests {
    use super::{Severity, check};
    use crate::TcpState::{Established, Listen};
    use crate::testing::{PID, holder, radar, snapshot, tcp, unix_listener};

    #[test]
    fn r23_an_inheritable_listener_in_another_process_is_a_warning() {
        let listener = tcp(5, Listen, None).cloexec(Some(false)).shared_with(&[
            holder(77, 5),
            holder(76, 5),
            holder(76, 9),
        ]);
        let found = check(&snapshot(vec![listener]));
        assert!(
            found[0]
                .message
                .starts_with("listener 5 (tcp:LISTEN) is also open in pid 76-77: "),
            "{found:?}"
        );
        assert_eq!((found[0].severity, &found[0].fds[..]), (None, &[5][..]));
    }

    #[test]
    fn r23_with_close_on_exec_or_not_knowing_it_is_only_worth_knowing() {
        for cloexec in [Some(true), None] {
            let listener = unix_listener(5, "/run/app.sock")
                .cloexec(cloexec)
                .shared_with(&[holder(77, 5)]);
            let found = check(&snapshot(vec![listener]));
            assert_eq!(found[0].severity, Some(Severity::Info));
        }
    }

    #[test]
    fn r23_a_listener_held_here_alone_and_a_shared_connection_are_quiet() {
        let fds = vec![
            tcp(5, Listen, None).cloexec(Some(false)),
            tcp(6, Listen, None).shared_with(&[holder(PID, 7)]),
            tcp(8, Established, None).shared_with(&[holder(77, 5)]),
        ];
        assert!(check(&snapshot(fds)).is_empty());
        assert!(check(&radar(900)).is_empty());
    }
}
