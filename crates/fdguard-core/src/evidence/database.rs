//! Which processes hold which SQLite database: several processes on one are a frequent cause of
//! trouble.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Relative;
use crate::{Class, FdEntry, Pid, Snapshot, Text};

/// A database and the processes that have it open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Database {
    /// Its path, without the suffix of a side file.
    pub path: Text,
    /// Descriptors of the process on the database itself.
    pub connections: u64,
    /// On its write-ahead log.
    pub wal: u64,
    /// On the index of that.
    pub shm: u64,
    /// On its rollback journal.
    pub journal: u64,
    /// How many of all these were deleted: data written there is lost.
    pub deleted: u64,
    /// The other processes that hold it, as far as visible.
    pub holders: Vec<DatabaseHolder>,
    /// How many descriptors of others are not listed.
    pub holders_more: u64,
}

/// Another process that holds a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DatabaseHolder {
    /// Its number.
    pub pid: Pid,
    /// Its command, if it is a relative.
    pub comm: Option<Text>,
    /// How many descriptors it has on it.
    pub descriptors: u64,
    /// Whether it may write; absent where unknown.
    pub writes: Option<bool>,
}

/// The databases of a snapshot, by path.
pub(super) fn databases(snapshot: &Snapshot, relatives: &[Relative]) -> Vec<Database> {
    let mut found: BTreeMap<&[u8], Database> = BTreeMap::new();
    for entry in snapshot.fds.iter().flatten() {
        let Some(path) = base_path(entry) else {
            continue;
        };
        let database = found.entry(path).or_insert_with(|| Database {
            path: Text::from(path),
            connections: 0,
            wal: 0,
            shm: 0,
            journal: 0,
            deleted: 0,
            holders: Vec::new(),
            holders_more: 0,
        });
        match entry.class {
            Class::SqliteWal => database.wal += 1,
            Class::SqliteShm => database.shm += 1,
            Class::SqliteJournal => database.journal += 1,
            _ => database.connections += 1,
        }
        database.deleted += u64::from(entry.deleted);
        database.holders_more = database.holders_more.max(entry.shared_more);
        // Every descriptor of one file names the same other holders: the first of its class is
        // enough.
        if database.count_of(&entry.class) == 1 {
            add_holders(database, entry, relatives);
        }
    }
    let mut list: Vec<Database> = found.into_values().collect();
    list.sort_by_key(|database| std::cmp::Reverse(database.connections));
    list
}

impl Database {
    fn count_of(&self, class: &Class) -> u64 {
        match class {
            Class::SqliteWal => self.wal,
            Class::SqliteShm => self.shm,
            Class::SqliteJournal => self.journal,
            _ => self.connections,
        }
    }
}

/// The path of the database that an entry belongs to.
fn base_path(entry: &FdEntry) -> Option<&[u8]> {
    let path = entry.path()?.as_bytes();
    let side: &[u8] = match entry.class {
        Class::SqliteDb => b"",
        Class::SqliteWal => b"-wal",
        Class::SqliteShm => b"-shm",
        Class::SqliteJournal => b"-journal",
        _ => return None,
    };
    Some(path.strip_suffix(side).unwrap_or(path))
}

fn add_holders(database: &mut Database, entry: &FdEntry, relatives: &[Relative]) {
    for holder in &entry.shared_with {
        let known = database
            .holders
            .iter_mut()
            .find(|one| one.pid == holder.pid);
        if let Some(known) = known {
            known.descriptors += 1;
            known.writes = known.writes.max(holder.writes);
            continue;
        }
        let relative = relatives.iter().find(|one| one.pid == holder.pid);
        database.holders.push(DatabaseHolder {
            pid: holder.pid,
            comm: relative.map(|one| one.comm.clone()),
            descriptors: 1,
            writes: holder.writes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::databases;
    use crate::Class;
    use crate::testing::{file, holder, snapshot};

    #[test]
    fn r44_a_database_names_its_side_files_and_every_other_process_once() {
        let others = [holder(7, 3), holder(7, 4), holder(8, 9)];
        let fds = vec![
            file(3, Class::SqliteDb, "/srv/state.db").shared_with(&others),
            file(4, Class::SqliteDb, "/srv/state.db").shared_with(&others),
            file(5, Class::SqliteWal, "/srv/state.db-wal").deleted(),
            file(6, Class::SqliteDb, "/srv/other.db"),
            file(7, Class::Regular, "/srv/state.db.txt"),
        ];
        let found = databases(&snapshot(fds), &[]);
        assert_eq!(found.len(), 2);
        let state = &found[0];
        assert_eq!(state.path.as_str(), Some("/srv/state.db"));
        assert_eq!((state.connections, state.wal, state.deleted), (2, 1, 1));
        let holders: Vec<_> = state
            .holders
            .iter()
            .map(|one| (one.pid, one.descriptors))
            .collect();
        assert_eq!(holders, [(7, 2), (8, 1)]);
        assert!(found[1].holders.is_empty());
    }
}
