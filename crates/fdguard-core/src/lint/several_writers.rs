//! SQLite databases that several processes write to.

use std::collections::{BTreeMap, BTreeSet};

use super::wording::numbers;
use super::{LintMatch, Rule, RuleKind, Severity, entries};
use crate::{Class, Fd, Mode, Pid, Snapshot, Text};

// Info, not a warning: SQLite arbitrates between processes by design, and a web server with workers
// looks just like this. It is a problem if it was not intended (two instances of a service) or if
// locks do not work (network file systems), and neither is visible from here.
pub(super) const RULE: Rule = Rule {
    id: "several-writers",
    kind: RuleKind::Lint,
    severity: Severity::Info,
    summary: "SQLite databases that other processes also have open for writing",
    cwe: None,
    requirement: "R44",
    fix: Some(
        "check that each of them is meant to write: stop a second instance, and never carry a connection across fork",
    ),
};

#[derive(Default)]
struct Writers {
    fds: Vec<Fd>,
    others: BTreeSet<Pid>,
}

pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    let own = snapshot.process.pid;
    let mut databases: BTreeMap<&Text, Writers> = BTreeMap::new();
    for entry in entries(snapshot).filter(|entry| entry.class == Class::SqliteDb) {
        let Some(path) = entry
            .path()
            .filter(|_| entry.mode.is_some_and(Mode::writes))
        else {
            continue;
        };
        let writers = databases.entry(path).or_default();
        writers.fds.push(entry.fd);
        let others = entry.shared_with.iter();
        writers.others.extend(
            others
                .filter(|holder| holder.writes == Some(true) && holder.pid != own)
                .map(|holder| holder.pid),
        );
    }
    databases
        .into_iter()
        .filter(|(_, writers)| !writers.others.is_empty())
        .map(|(path, writers)| sentence(path, writers, own))
        .collect()
}

fn sentence(path: &Text, writers: Writers, own: Pid) -> LintMatch {
    let others: Vec<Pid> = writers.others.into_iter().collect();
    let message = format!(
        "{} processes have {} open for writing: this one ({own}) and pid {}; check that this is intended",
        others.len() + 1,
        path.to_lossy(),
        numbers(&others)
    );
    LintMatch::new(message, writers.fds)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::testing::{file, holder, radar, snapshot};
    use crate::{Class, FdHolder, Mode};

    fn writer(pid: u32) -> FdHolder {
        FdHolder {
            writes: Some(true),
            ..holder(pid, 3)
        }
    }

    #[test]
    fn r44_every_process_that_writes_is_named() {
        let db = |fd| {
            let holders = [writer(70), writer(80), writer(80)];
            file(fd, Class::SqliteDb, "/srv/state.db").shared_with(&holders)
        };
        let found = check(&snapshot(vec![db(3), db(6)]));
        assert_eq!(
            found[0].message,
            "3 processes have /srv/state.db open for writing: this one (4242) and pid 70, 80; \
             check that this is intended"
        );
        assert_eq!(found[0].fds, [3, 6]);
    }

    #[test]
    fn r44_readers_on_either_side_are_quiet() {
        let db = || file(3, Class::SqliteDb, "/srv/state.db");
        let reading_here = db().mode(Some(Mode::Read)).shared_with(&[writer(70)]);
        assert!(check(&snapshot(vec![reading_here])).is_empty());
        let reader = FdHolder {
            writes: Some(false),
            ..holder(70, 3)
        };
        assert!(check(&snapshot(vec![db().shared_with(&[reader])])).is_empty());
    }

    #[test]
    fn r44_not_knowing_who_writes_is_no_finding() {
        let db = || file(3, Class::SqliteDb, "/srv/state.db");
        assert!(check(&snapshot(vec![db().shared_with(&[holder(70, 3)])])).is_empty());
        let unread = db().mode(None).shared_with(&[writer(70)]);
        assert!(check(&snapshot(vec![unread])).is_empty());
        assert!(check(&radar(900)).is_empty());
    }
}
