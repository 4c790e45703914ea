//! Descriptors that every child program inherits and none should.

use super::wording::{groups, most_common};
use super::{LintMatch, Rule, RuleKind, Severity, entries, fds_of, is_listener};
use crate::units::counted;
use crate::{Class, Detail, FdEntry, Snapshot, TcpState};

pub(super) const RULE: Rule = Rule {
    id: "missing-cloexec",
    kind: RuleKind::Lint,
    severity: Severity::Info,
    summary: "databases, sockets, locks and terminals that child programs inherit",
    cwe: Some(403),
    requirement: "R37",
    fix: Some(
        "open with O_CLOEXEC, SOCK_CLOEXEC or EPOLL_CLOEXEC; pass descriptors to children explicitly",
    ),
};

pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    let open: Vec<_> = entries(snapshot)
        .filter(|entry| entry.fd > 2 && entry.cloexec == Some(false) && is_sensitive(entry))
        .collect();
    if open.is_empty() {
        return Vec::new();
    }
    let classes = most_common(open.iter().map(|entry| entry.class.to_string()));
    let message = format!(
        "{} would be inherited by any program that this process starts: {}",
        counted(open.len(), "descriptor"),
        groups(&classes, "")
    );
    vec![LintMatch::new(message, fds_of(&open))]
}

/// Descriptors that do harm in another program: data, ports, peers that wait for a hang-up,
/// terminals that stay open, locks that stay taken. Plain files and pipes are passed on purpose too
/// often to report; pidfds always close at exec.
fn is_sensitive(entry: &FdEntry) -> bool {
    let by_class = match &entry.class {
        Class::PtyMaster | Class::Eventpoll => true,
        Class::Tcp(state) => matches!(
            state,
            TcpState::Listen | TcpState::Established | TcpState::CloseWait
        ),
        class => class.is_sqlite(),
    };
    by_class || is_listener(entry) || holds_inheritable_lock(entry)
}

/// Locks of this kind belong to the open file and are inherited with it: a grandchild keeps them
/// alive.
fn holds_inheritable_lock(entry: &FdEntry) -> bool {
    match &entry.detail {
        Detail::File(file) => file
            .locks
            .iter()
            .any(|lock| matches!(lock.kind.as_str(), "FLOCK" | "OFDLCK")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::TcpState::{Established, Listen};
    use crate::testing::{entry, file, pty, radar, snapshot, tcp, unix_listener};
    use crate::{Class, FdEntry};

    fn sensitive() -> Vec<FdEntry> {
        vec![
            file(3, Class::SqliteDb, "/srv/app.db"),
            tcp(4, Listen, None),
            tcp(5, Established, Some("10.0.0.7:443")),
            tcp(6, Established, Some("10.0.0.7:443")),
            pty(7, 3),
            unix_listener(8, "/run/app.sock"),
            file(9, Class::Regular, "/run/app.pid").locked("FLOCK"),
        ]
    }

    fn with(fds: Vec<FdEntry>, cloexec: Option<bool>) -> Vec<FdEntry> {
        fds.into_iter().map(|fd| fd.cloexec(cloexec)).collect()
    }

    #[test]
    fn r37_inheritable_descriptors_are_one_group_with_counts() {
        let found = check(&snapshot(with(sensitive(), Some(false))));
        assert_eq!(found[0].fds, [3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(
            found[0].message,
            "7 descriptors would be inherited by any program that this process starts: \
             2 tcp:ESTABLISHED, 1 pty-master, 1 regular, 3 other"
        );
    }

    #[test]
    fn r37_close_on_exec_stdio_and_harmless_kinds_are_quiet() {
        assert!(check(&snapshot(with(sensitive(), Some(true)))).is_empty());
        let harmless = vec![
            tcp(0, Established, None),
            file(3, Class::Regular, "/var/log/app.log").locked("POSIX"),
            entry(4, Class::Pipe),
            entry(5, Class::Unix),
        ];
        assert!(check(&snapshot(with(harmless, Some(false)))).is_empty());
    }

    #[test]
    fn r37_an_unknown_flag_is_no_finding() {
        assert!(check(&snapshot(with(sensitive(), None))).is_empty());
        assert!(check(&radar(900)).is_empty());
    }
}
