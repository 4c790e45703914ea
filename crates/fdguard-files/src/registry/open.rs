//! Opens a registry: inspected from outside first, created completely before it gets its name, and
//! opened once per process.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use fdguard_probe::Probe;
use rusqlite::{Connection, OpenFlags};

use super::PATIENCE;
use super::error::Error;
use super::guard::{Guard, Id, id_at};
use super::store::Store;
use crate::check::{CheckDepth, complaints};
use crate::holding::HolderRole;
use crate::{FileVerdict, Options, Vault, inspect};

/// Marks a database as a registry: `fdgr`.
const APPLICATION: i64 = 0x6664_6772;
/// The version of the tables.
const VERSION: i64 = 2;
/// The upgrade from version 1.
const FROM_1: &str =
    "BEGIN IMMEDIATE; ALTER TABLE entries ADD COLUMN keeper TEXT; PRAGMA user_version = 2; COMMIT;";

const TABLES: &str = "
CREATE TABLE entries(
  id TEXT PRIMARY KEY NOT NULL,
  kind TEXT NOT NULL,
  client TEXT,
  state TEXT NOT NULL CHECK(state IN ('running', 'closing', 'closed', 'failed')),
  owner TEXT,
  owner_process TEXT,
  reason TEXT,
  version INTEGER NOT NULL,
  process TEXT,
  host TEXT,
  started_at TEXT NOT NULL,
  ended_at TEXT,
  files TEXT NOT NULL,
  receipt TEXT,
  keeper TEXT
) STRICT;
CREATE INDEX by_state ON entries(state);
CREATE TRIGGER what_has_ended_stays BEFORE UPDATE ON entries WHEN OLD.state IN ('closed', 'failed')
BEGIN SELECT RAISE(ABORT, 'an entry that has ended is never changed'); END;
";

/// An open registry of this process. SQLite keeps one lock table and one WAL index per file and
/// process, with descriptor numbers in them: two vaults with the same file would use each other's
/// numbers. So there is only one, and every caller shares it.
#[derive(Debug)]
pub(super) struct OpenedDatabase {
    /// `None` only while it is dropped.
    pub(super) vault: Option<Vault<Store>>,
    pub(super) path: PathBuf,
    id: Id,
}

static OPEN: Mutex<Vec<(Id, Weak<OpenedDatabase>)>> = Mutex::new(Vec::new());
static CLOSED: Condvar = Condvar::new();

impl OpenedDatabase {
    /// Returns the registry of this file, opening it if it is not open.
    pub(super) fn get(path: &Path) -> Result<Arc<Self>, Error> {
        let path = whole(path)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let here = id_at(&path);
            let known = open.iter().find(|(id, _)| here == Some(*id));
            match known.map(|(_, opened)| opened.upgrade()) {
                Some(Some(opened)) => return Ok(opened),
                // It is being closed.
                Some(None) => open = CLOSED.wait(open).unwrap_or_else(PoisonError::into_inner),
                None => break,
            }
        }
        let inside = path.clone();
        let vault = Vault::start("fdguard-vault", move || Store::open(&inside))??;
        let id = vault.run(|store| store.guard.id())?;
        let id = id.or_else(|| id_at(&path)).unwrap_or_default();
        let opened = Arc::new(Self {
            vault: Some(vault),
            path,
            id,
        });
        open.push((id, Arc::downgrade(&opened)));
        Ok(opened)
    }
}

impl Drop for OpenedDatabase {
    fn drop(&mut self) {
        drop(self.vault.take());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(id, _)| *id != self.id);
        drop(open);
        CLOSED.notify_all();
    }
}

/// The path without links; the file may be missing.
fn whole(path: &Path) -> Result<PathBuf, Error> {
    let failed = |error| crate::Error::io(path, "cannot find", error);
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return Ok(other.map_err(failed)?),
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    let dir = dir.canonicalize().map_err(failed)?;
    let name = path.file_name().ok_or(crate::Error::NotAFile {
        path: path.to_owned(),
        what: "a directory",
    })?;
    Ok(dir.join(name))
}

impl Store {
    /// Runs only in the vault.
    fn open(path: &Path) -> Result<Self, Error> {
        if id_at(path).is_none() {
            make(path)?;
        }
        check_file(path)?;
        let before = id_at(path);
        // Never creates the file: one that vanished just now is an error, not a new and empty
        // registry.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let sql = |error| Error::sqlite(path, error);
        let connection = Connection::open_with_flags(path, flags).map_err(sql)?;
        connection.busy_timeout(PATIENCE).map_err(sql)?;
        // SQLite opens a file that it may not write read-only and reports that only at the first
        // change.
        if connection.is_readonly("main").map_err(sql)? {
            let denied = io::ErrorKind::PermissionDenied;
            return Err(crate::Error::io(path, "cannot write", denied).into());
        }
        is_ours(path, &connection)?;
        let mode: String = connection
            .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
            .map_err(sql)?;
        if mode != "wal" {
            let what = format!("its journal mode is {mode} and cannot be changed to WAL");
            let path = path.to_owned();
            return Err(Error::NotARegistry { path, what });
        }
        // A crash of a process loses nothing. A crash of the machine may lose the last changes, but
        // it ends all processes, too.
        connection
            .pragma_update(None, "synchronous", "normal")
            .map_err(sql)?;
        let problems = complaints(&connection, CheckDepth::Quick).map_err(sql)?;
        if let Some(problem) = problems.first() {
            return Err(damaged(path, problem));
        }
        let guard = Guard::open(path)?;
        if guard.id() != before {
            return Err(Error::Replaced {
                path: path.to_owned(),
                what: "replaced",
            });
        }
        Ok(Self {
            path: path.to_owned(),
            connection,
            guard,
        })
    }
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::Damaged {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}

/// From outside, before SQLite touches it: SQLite may make damage worse.
fn check_file(path: &Path) -> Result<(), Error> {
    let probe = Probe::new().map_err(crate::Error::from)?;
    let options = Options {
        check: None,
        ..Options::default()
    };
    let found = inspect(&probe, path, options)?;
    match (found.size, found.verdict) {
        // A registry has tables before it gets its name.
        (0, _) => Err(damaged(path, "the file is empty")),
        (_, FileVerdict::Damaged | FileVerdict::Encrypted) => Err(damaged(path, &found.summary)),
        _ => Ok(()),
    }
}

fn is_ours(path: &Path, connection: &Connection) -> Result<(), Error> {
    let number = |name: &str| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .map_err(|error| Error::sqlite(path, error))
    };
    if number("application_id")? != APPLICATION {
        return Err(Error::NotARegistry {
            path: path.to_owned(),
            what: "it belongs to another program".to_owned(),
        });
    }
    match number("user_version")? {
        VERSION => Ok(()),
        1 => upgrade(path, connection),
        found if found > VERSION => Err(Error::Newer {
            path: path.to_owned(),
            found,
            known: VERSION,
        }),
        found => Err(damaged(path, &format!("version {found} does not exist"))),
    }
}

/// Upgrades a registry of version 1. If another process was faster, there is nothing to do.
fn upgrade(path: &Path, connection: &Connection) -> Result<(), Error> {
    let Err(error) = connection.execute_batch(FROM_1) else {
        return Ok(());
    };
    if !connection.is_autocommit() {
        let _undone = connection.execute_batch("ROLLBACK");
    }
    let version = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    match version {
        Ok(VERSION) => Ok(()),
        _ => Err(Error::sqlite(path, error)),
    }
}

/// Creates a registry under a temporary name and renames it when it is complete, so that no process
/// sees a partial one.
fn make(path: &Path) -> Result<(), Error> {
    let log = HolderRole::Wal.path(path);
    if log.exists() {
        return Err(damaged(path, "the database is missing, but its WAL exists"));
    }
    let io = |what| move |error: io::Error| crate::Error::io(path, what, error);
    let sql = |error| Error::sqlite(path, error);
    let dir = path.parent().unwrap_or(Path::new("/"));
    let new = tempfile::Builder::new()
        .prefix(".fdguard-registry-")
        .tempfile_in(dir)
        .map_err(io("cannot create"))?
        .into_temp_path();
    let connection = Connection::open(&new).map_err(sql)?;
    let numbers =
        format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};");
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = wal; BEGIN; {TABLES} {numbers} COMMIT;"
        ))
        .map_err(sql)?;
    connection.close().map_err(|(_, error)| sql(error))?;
    let synced = File::open(&new).and_then(|file| file.sync_all());
    synced.map_err(io("cannot sync"))?;
    match new.persist_noclobber(path) {
        Ok(()) => {}
        // Another process was faster: its file is just as good.
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(io("cannot create")(error.error).into()),
    }
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    Ok(synced.map_err(io("cannot sync"))?)
}
