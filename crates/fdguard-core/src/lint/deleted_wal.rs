//! SQLite files that were deleted while a process uses them.

use std::collections::{BTreeMap, BTreeSet};

use super::wording::numbers;
use super::{LintMatch, Rule, RuleKind, Severity, entries, fds_of};
use crate::{Class, FdEntry, Mode, Snapshot, Text};

pub(super) const RULE: Rule = Rule {
    id: "deleted-wal",
    kind: RuleKind::Lint,
    severity: Severity::Critical,
    summary: "SQLite database, -wal or -shm files deleted while still in use",
    cwe: Some(672),
    requirement: "R44",
    fix: Some(
        "do not restart yet: copy the deleted files from /proc/PID/fd first; then stop every user of the database and find what deletes its -wal",
    ),
};

pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    let mut databases: BTreeMap<Text, Vec<(&'static str, &FdEntry)>> = BTreeMap::new();
    for entry in entries(snapshot).filter(|entry| entry.deleted) {
        if let Some((base, part)) = part(entry) {
            databases.entry(base).or_default().push((part, entry));
        }
    }
    databases
        .into_iter()
        .map(|(base, parts)| suspicion(&base, &parts))
        .collect()
}

fn suspicion(base: &Text, parts: &[(&'static str, &FdEntry)]) -> LintMatch {
    let names: BTreeSet<&str> = parts.iter().map(|(name, _)| *name).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let held: Vec<&FdEntry> = parts.iter().map(|(_, entry)| *entry).collect();
    let fds = fds_of(&held);
    let subject = format!(
        "{}: {} in use (fd {})",
        base.to_lossy(),
        fate(&names),
        numbers(&fds)
    );
    // A reader of a replaced database sees old data; only a writer loses data.
    if held.iter().all(|entry| entry.mode == Some(Mode::Read)) {
        let message = format!("{subject}: reads come from a file that no other process sees");
        return LintMatch::new(message, fds).at(Severity::Warning);
    }
    let message =
        format!("{subject}: writes report success but are lost when the last descriptor closes");
    LintMatch::new(message, fds)
}

fn fate(names: &[&str]) -> String {
    let fate = if names.len() == 1 {
        "was deleted while"
    } else {
        "were deleted while"
    };
    format!("{} {fate}", names.join(" and "))
}

/// Which database a deleted file belongs to, and as what. A deleted log may be recognisable as
/// SQLite's only by its path.
fn part(entry: &FdEntry) -> Option<(Text, &'static str)> {
    let path = entry.path()?.as_bytes();
    let is = |class: &Class| entry.class == *class || entry.class == Class::Deleted;
    for (class, suffix) in [(Class::SqliteWal, "-wal"), (Class::SqliteShm, "-shm")] {
        if let Some(base) = path.strip_suffix(suffix.as_bytes())
            && is(&class)
        {
            return Some((Text::from(base), suffix));
        }
    }
    (entry.class == Class::SqliteDb && !is_temporary(path))
        .then(|| (Text::from(path), "database file"))
}

/// SQLite deletes its own temporary databases right after opening them, under this name.
fn is_temporary(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    name.starts_with(b"etilqs_")
}

#[cfg(test)]
mod tests {
    use super::{Severity, check};
    use crate::testing::{entry, file, radar, snapshot};
    use crate::{Class, Mode};

    #[test]
    fn r44_a_deleted_log_means_that_writes_go_nowhere() {
        let fds = vec![
            file(3, Class::SqliteDb, "/srv/state.db"),
            file(4, Class::SqliteWal, "/srv/state.db-wal").deleted(),
            file(5, Class::SqliteShm, "/srv/state.db-shm").deleted(),
            file(7, Class::SqliteWal, "/srv/state.db-wal").deleted(),
        ];
        let found = check(&snapshot(fds));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].message.starts_with(
                "/srv/state.db: -shm and -wal were deleted while in use (fd 4-5, 7): \
                 writes report success but are lost"
            ),
            "{found:?}"
        );
        assert_eq!(found[0].fds, [4, 5, 7]);
        assert_eq!(found[0].severity, None);
    }

    #[test]
    fn r44_a_log_that_is_only_known_by_its_name_counts_too() {
        let log = file(4, Class::Deleted, "/srv/state.db-wal").deleted();
        assert_eq!(check(&snapshot(vec![log])).len(), 1);
    }

    #[test]
    fn r44_a_replaced_database_that_is_only_read_is_less_grave() {
        let old = file(3, Class::SqliteDb, "/srv/state.db").deleted();
        let found = check(&snapshot(vec![old.clone().mode(Some(Mode::Read))]));
        assert_eq!(found[0].severity, Some(Severity::Warning));
        // An unknown mode does not prove that there is no writer.
        let found = check(&snapshot(vec![old.mode(None)]));
        assert_eq!(found[0].severity, None);
    }

    #[test]
    fn r44_files_with_a_name_and_temporary_ones_are_quiet() {
        let fds = vec![
            file(3, Class::SqliteDb, "/srv/state.db"),
            file(4, Class::SqliteWal, "/srv/state.db-wal"),
            file(5, Class::SqliteDb, "/var/tmp/etilqs_d41d8cd98f").deleted(),
            file(6, Class::Deleted, "/var/log/app.log").deleted(),
            entry(7, Class::Memfd).deleted(),
        ];
        assert!(check(&snapshot(fds)).is_empty());
        assert!(check(&radar(900)).is_empty());
    }
}
