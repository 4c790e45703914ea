//! Descriptors 0, 1 and 2 that are closed or are not standard streams.

use super::{LintMatch, Rule, RuleKind, Severity, entries};
use crate::{Class, Fd, FdEntry, Mode, Snapshot};

pub(super) const RULE: Rule = Rule {
    id: "stdio-slot",
    kind: RuleKind::Lint,
    severity: Severity::Warning,
    summary: "descriptor 0, 1 or 2 is closed or is not a standard stream",
    cwe: None,
    requirement: "R41",
    fix: Some(
        "open /dev/null on 0, 1 and 2 instead of closing them, before anything else is opened",
    ),
};

const SLOTS: [(Fd, &str); 3] = [(0, "stdin"), (1, "stdout"), (2, "stderr")];

pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    // Kernel threads and exiting processes hold no descriptors: nothing closed their stdio.
    if entries(snapshot).next().is_none() {
        return Vec::new();
    }
    let slot = |fd| entries(snapshot).find(|entry| entry.fd == fd);
    let inetd = slot(0).zip(slot(1)).is_some_and(is_inetd_pair);
    SLOTS
        .into_iter()
        .filter_map(|(fd, name)| match slot(fd) {
            None => Some(closed(fd, name)),
            Some(entry) if inetd && is_socket(&entry.class) => None,
            Some(entry) => judge(entry, name),
        })
        .collect()
}

fn closed(fd: Fd, name: &str) -> LintMatch {
    let harm = if fd == 0 {
        "is read as stdin"
    } else {
        "receives everything printed there"
    };
    let message =
        format!("{name} ({fd}) is closed: the next file opened takes its place and {harm}");
    LintMatch::new(message, Vec::new())
}

fn judge(entry: &FdEntry, name: &str) -> Option<LintMatch> {
    let severity = match &entry.class {
        class if class.is_sqlite() => database(entry.mode)?,
        Class::Tcp(_) => Severity::Critical,
        class if is_stdio(class) => return None,
        _ => Severity::Warning,
    };
    let message = format!(
        "{name} ({}) is {} {}: it was opened while {name} was closed, so code that uses {name} uses it",
        entry.fd,
        entry.class,
        entry.target.to_lossy()
    );
    Some(LintMatch::new(message, vec![entry.fd]).at(severity))
}

/// A shell redirection opens for one direction only (`cat < app.db`, `dd of=copy.db`); a database
/// in use is open for both.
fn database(mode: Option<Mode>) -> Option<Severity> {
    match mode {
        Some(Mode::ReadWrite) => Some(Severity::Critical),
        None => Some(Severity::Warning),
        Some(_) => None,
    }
}

/// What people and service managers put there: terminals, `/dev/null`, pipes, log files (rotated or
/// not), here-documents in deleted or memory files, the journal's socket, `dd`'s devices.
fn is_stdio(class: &Class) -> bool {
    matches!(
        class,
        Class::Tty
            | Class::Chardev
            | Class::Blockdev
            | Class::Pipe
            | Class::Fifo
            | Class::Regular
            | Class::Deleted
            | Class::Memfd
            | Class::Unix
    )
}

fn is_socket(class: &Class) -> bool {
    matches!(class, Class::Tcp(_) | Class::Udp | Class::Vsock)
}

/// inetd and systemd's `Accept=yes` pass one connection as stdin and stdout; stderr is the same
/// connection or goes to the log.
fn is_inetd_pair((stdin, stdout): (&FdEntry, &FdEntry)) -> bool {
    let same = match (stdin.id, stdout.id) {
        (Some(a), Some(b)) => a == b,
        _ => stdin.target == stdout.target,
    };
    same && is_socket(&stdin.class) && is_socket(&stdout.class)
}

#[cfg(test)]
mod tests {
    use super::{Severity, check};
    use crate::TcpState::Established;
    use crate::testing::{entry, file, radar, snapshot, stdio, tcp};
    use crate::{Class, FdEntry, Mode};

    fn with(entry: FdEntry) -> Vec<FdEntry> {
        let mut fds = stdio();
        fds.retain(|other| other.fd != entry.fd);
        fds.push(entry);
        fds
    }

    #[test]
    fn r41_a_closed_slot_is_reported_by_its_name() {
        let mut fds = stdio();
        fds.retain(|entry| entry.fd == 1);
        let found = check(&snapshot(fds));
        assert_eq!(
            found[0].message,
            "stdin (0) is closed: the next file opened takes its place and is read as stdin"
        );
        assert_eq!(
            found[1].message,
            "stderr (2) is closed: the next file opened takes its place and receives everything printed there"
        );
        assert_eq!(found[0].severity, None);
    }

    #[test]
    fn r41_a_database_or_a_connection_there_is_critical() {
        let db = file(2, Class::SqliteDb, "/srv/app.db");
        let found = check(&snapshot(with(db)));
        assert_eq!(found[0].severity, Some(Severity::Critical));
        assert!(
            found[0]
                .message
                .starts_with("stderr (2) is sqlite-db /srv/app.db: "),
            "{found:?}"
        );
        let found = check(&snapshot(with(tcp(1, Established, Some("10.0.0.7:443")))));
        assert_eq!(found[0].severity, Some(Severity::Critical));
        assert_eq!(found[0].fds, [1]);
    }

    #[test]
    fn r41_anything_else_that_is_no_stdio_is_a_warning() {
        let found = check(&snapshot(with(entry(0, Class::Eventpoll))));
        assert_eq!(found[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn r41_redirections_and_service_managers_are_quiet() {
        for class in [Class::Tty, Class::Pipe, Class::Unix, Class::Deleted] {
            for slot in 0..=2 {
                let fds = with(entry(slot, class.clone()));
                assert!(check(&snapshot(fds)).is_empty(), "{class} at {slot}");
            }
        }
        let redirected = file(0, Class::SqliteDb, "/srv/app.db").mode(Some(Mode::Read));
        assert!(check(&snapshot(with(redirected))).is_empty());
    }

    #[test]
    fn r41_a_connection_handed_over_by_inetd_is_quiet() {
        let one = |fd| FdEntry {
            id: tcp(9, Established, None).id,
            ..tcp(fd, Established, Some("10.0.0.7:5000"))
        };
        assert!(check(&snapshot(vec![one(0), one(1), one(2)])).is_empty());
        let journal = entry(2, Class::Unix);
        assert!(check(&snapshot(vec![one(0), one(1), journal])).is_empty());
    }

    #[test]
    fn r41_without_a_list_or_with_an_empty_one_nothing_is_said() {
        assert!(check(&radar(900)).is_empty());
        assert!(check(&snapshot(Vec::new())).is_empty());
        // Unknown mode: the slot is odd either way, but not proven to be in use as a database.
        let unread = file(1, Class::SqliteDb, "/srv/app.db").mode(None);
        let found = check(&snapshot(with(unread)));
        assert_eq!(found[0].severity, Some(Severity::Warning));
    }
}
