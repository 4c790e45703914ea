//! SQLite databases whose locks another close would drop, or has dropped.
//!
//! POSIX locks belong to process and inode: closing *any* descriptor of the inode drops all of
//! them. SQLite knows this and parks its own descriptors; other code that opens the database file
//! does not. The properties of SQLite's descriptors were tested with 3.40: always `O_CLOEXEC`, only
//! `pread` and `pwrite`, so the position stays 0. Read-only proves nothing: a connection with
//! `mode=ro` opens `O_RDONLY` too.

use std::collections::BTreeMap;

use super::wording::numbers;
use super::{LintMatch, Rule, RuleKind, Severity, entries, fds_of};
use crate::{Class, Detail, FdEntry, FileId, Snapshot, Text};

pub(super) const RULE: Rule = Rule {
    id: "lock-drop-risk",
    kind: RuleKind::Lint,
    severity: Severity::Warning,
    summary: "a database descriptor outside SQLite whose close drops, or has dropped, SQLite's locks",
    cwe: Some(667),
    requirement: "R43",
    fix: Some(
        "never open a database file directly in a process that has it open through SQLite: query through SQL, or read it from a child process",
    ),
};

pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    let mut found = at_risk(snapshot);
    found.extend(dropped(snapshot));
    found
}

/// Locked databases that something other than SQLite has open as well.
fn at_risk(snapshot: &Snapshot) -> Vec<LintMatch> {
    let mut files: BTreeMap<FileId, Vec<&FdEntry>> = BTreeMap::new();
    for entry in entries(snapshot).filter(|entry| entry.class == Class::SqliteDb) {
        if let Some(id) = entry.id {
            files.entry(id).or_default().push(entry);
        }
    }
    files.values().filter_map(|handles| risk(handles)).collect()
}

fn risk(handles: &[&FdEntry]) -> Option<LintMatch> {
    // The kernel shows a lock under the descriptor that took it. If that one does not look like
    // SQLite's, this build of SQLite works differently (or it is not SQLite), and nothing follows.
    let owner = handles.iter().find(|entry| has_posix_lock(entry))?;
    if looks_foreign(owner) {
        return None;
    }
    let foreign: Vec<&FdEntry> = handles
        .iter()
        .copied()
        .filter(|entry| looks_foreign(entry))
        .collect();
    if foreign.is_empty() {
        return None;
    }
    let fds = fds_of(&foreign);
    let message = format!(
        "{} is also open outside SQLite (fd {}): any close drops the locks that SQLite holds through fd {}",
        owner.target.to_lossy(),
        numbers(&fds),
        owner.fd
    );
    Some(LintMatch::new(message, fds))
}

/// Something that SQLite's own descriptors never are: inheritable, or moved by plain reads.
fn looks_foreign(entry: &FdEntry) -> bool {
    let moved = match &entry.detail {
        Detail::File(file) => file.pos.is_some_and(|pos| pos != 0),
        _ => false,
    };
    moved || entry.cloexec == Some(false)
}

fn has_posix_lock(entry: &FdEntry) -> bool {
    match &entry.detail {
        Detail::File(file) => file.locks.iter().any(|lock| lock.kind == "POSIX"),
        _ => false,
    }
}

#[derive(Default)]
struct Database<'a> {
    db: Vec<&'a FdEntry>,
    wal: Vec<&'a FdEntry>,
    shm: Vec<&'a FdEntry>,
}

/// Databases whose locks are already gone. A live WAL connection keeps a shared lock on the
/// database and one on `-shm`. The second without the first is the result of a stray close; the
/// second also proves that locks on this file system are visible at all, and that this is not a
/// forked child, which inherits neither.
fn dropped(snapshot: &Snapshot) -> Vec<LintMatch> {
    let mut databases: BTreeMap<Text, Database<'_>> = BTreeMap::new();
    for entry in entries(snapshot) {
        let Some(path) = entry.path().map(Text::as_bytes) else {
            continue;
        };
        let base = |suffix: &str| Text::from(path.strip_suffix(suffix.as_bytes()).unwrap_or(path));
        match entry.class {
            Class::SqliteDb => databases.entry(base("")).or_default().db.push(entry),
            Class::SqliteWal => databases.entry(base("-wal")).or_default().wal.push(entry),
            Class::SqliteShm => databases.entry(base("-shm")).or_default().shm.push(entry),
            _ => {}
        }
    }
    databases
        .iter()
        .filter(|(_, database)| database.has_lost_locks())
        .map(|(path, database)| {
            let message = format!(
                "{} is in use without its lock: a close outside SQLite dropped it, and another process \
                 may now delete {}-wal while it is in use",
                path.to_lossy(),
                path.base_name()
            );
            LintMatch::new(message, fds_of(&database.db)).at(Severity::Critical)
        })
        .collect()
}

impl Database<'_> {
    fn has_lost_locks(&self) -> bool {
        // An unknown mode means that fdinfo, and so the locks, could not be read.
        let readable = self.db.iter().all(|entry| entry.mode.is_some());
        let locked = |entries: &[&FdEntry]| entries.iter().any(|entry| has_posix_lock(entry));
        !self.db.is_empty()
            && !self.wal.is_empty()
            && readable
            && locked(&self.shm)
            && !locked(&self.db)
    }
}

#[cfg(test)]
mod tests {
    use super::{Severity, check};
    use crate::testing::{file, radar, snapshot};
    use crate::{Class, FdEntry, Mode};

    fn db(fd: u32) -> FdEntry {
        file(fd, Class::SqliteDb, "/srv/state.db")
    }

    fn wal(fd: u32) -> FdEntry {
        file(fd, Class::SqliteWal, "/srv/state.db-wal")
    }

    fn shm(fd: u32) -> FdEntry {
        file(fd, Class::SqliteShm, "/srv/state.db-shm").locked("POSIX")
    }

    /// As seen with SQLite 3.40: two writers and one reader, one lock for all of them.
    fn healthy() -> Vec<FdEntry> {
        let reader = db(8).mode(Some(Mode::Read));
        vec![
            db(3).locked("POSIX"),
            wal(4),
            shm(5),
            db(6),
            wal(7),
            reader,
            wal(9),
        ]
    }

    #[test]
    fn r43_a_file_opened_beside_sqlite_is_named_with_what_it_endangers() {
        let mut fds = healthy();
        fds.push(db(11).mode(Some(Mode::Read)).at(Some(4096)));
        fds.push(db(12).cloexec(Some(false)));
        let found = check(&snapshot(fds));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].fds, [11, 12]);
        assert_eq!(
            found[0].message,
            "/srv/state.db is also open outside SQLite (fd 11-12): \
             any close drops the locks that SQLite holds through fd 3"
        );
    }

    #[test]
    fn r43_many_healthy_connections_and_parked_handles_are_quiet() {
        let mut fds = healthy();
        fds.extend((20..40).map(db));
        assert!(check(&snapshot(fds)).is_empty());
    }

    #[test]
    fn r43_without_a_lock_there_is_nothing_to_drop() {
        assert!(check(&snapshot(vec![db(3), db(11).at(Some(4096))])).is_empty());
    }

    #[test]
    fn r43_a_build_that_moves_its_own_position_is_not_accused() {
        let owner = db(3).at(Some(100)).locked("POSIX");
        assert!(check(&snapshot(vec![owner, db(6).at(Some(4096))])).is_empty());
    }

    #[test]
    fn r43_unknown_positions_flags_and_identities_are_no_finding() {
        let mut fds = healthy();
        fds.push(db(11).at(None).cloexec(None));
        fds.push(FdEntry {
            id: None,
            ..db(12).at(Some(4096))
        });
        assert!(check(&snapshot(fds)).is_empty());
        assert!(check(&radar(900)).is_empty());
    }

    #[test]
    fn r43_a_live_connection_without_its_lock_is_critical() {
        let found = check(&snapshot(vec![db(3), wal(4), shm(5)]));
        assert_eq!(found[0].severity, Some(Severity::Critical));
        assert!(
            found[0]
                .message
                .starts_with("/srv/state.db is in use without its lock: "),
            "{found:?}"
        );
        assert_eq!(found[0].fds, [3]);
    }

    #[test]
    fn r43_where_no_lock_can_be_seen_none_is_missed() {
        let blind = file(5, Class::SqliteShm, "/srv/state.db-shm");
        assert!(check(&snapshot(vec![db(3), wal(4), blind])).is_empty());
        let unread = db(3).mode(None);
        assert!(check(&snapshot(vec![unread, wal(4), shm(5)])).is_empty());
    }
}
