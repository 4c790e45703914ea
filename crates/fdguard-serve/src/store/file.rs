//! The file: opened, repaired by starting anew, written, kept small.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fdguard_core::sqlite_uri::sqlite_uri;
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::state_limit;
use crate::finding_book::{AcceptedFinding, FindingKey};
use crate::history_record::{HistoryBatch, HistoryEvent, HistorySample};
use crate::service::{ServiceKey, ServiceKind};

/// The layout of this version.
const LAYOUT: i64 = 3;
/// What makes it of the layouts before, oldest first.
const CHANGES: [(i64, &str); 2] = [
    (1, "ALTER TABLE sample ADD COLUMN targets TEXT;"),
    (2, RUNNING),
];
/// What runs, and what was kept for findings.
const RUNNING: &str = "
CREATE TABLE serving (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, boot TEXT NOT NULL, uptime REAL NOT NULL);
CREATE TABLE running (
    service INTEGER PRIMARY KEY, pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, program TEXT);
CREATE TABLE attachment (
    finding INTEGER PRIMARY KEY, at INTEGER NOT NULL, evidence TEXT, trace TEXT);
";
/// How long to wait for a reader.
const PATIENCE: Duration = Duration::from_secs(5);
/// A file may always have this many pages.
const LEAST_PAGES: i64 = 64;
/// Rows that are removed at a time when the file is too large.
const REMOVED: i64 = 2_000;

const TABLES: &str = "
CREATE TABLE service (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (kind, name));
CREATE TABLE sample (
    service INTEGER NOT NULL, at INTEGER NOT NULL, processes INTEGER NOT NULL, open_fds INTEGER,
    fd_limit INTEGER, ratio REAL, verdict TEXT NOT NULL, classes TEXT, targets TEXT,
    PRIMARY KEY (service, at)) WITHOUT ROWID;
CREATE INDEX sample_at ON sample (at);
CREATE TABLE event (
    id INTEGER PRIMARY KEY, service INTEGER NOT NULL, at INTEGER NOT NULL, event TEXT NOT NULL,
    text TEXT NOT NULL, deploy INTEGER, finding TEXT);
CREATE INDEX event_at ON event (at);
CREATE INDEX event_service ON event (service, at);
CREATE TABLE loss (at INTEGER PRIMARY KEY, rows INTEGER NOT NULL, why TEXT NOT NULL);
CREATE TABLE accepted (
    service INTEGER NOT NULL, rule TEXT NOT NULL, class TEXT, target TEXT, reason TEXT NOT NULL,
    until INTEGER);
";

/// Where the history is, and how much of it is kept.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The file.
    pub path: PathBuf,
    /// Older rows are removed.
    pub keep: Duration,
    /// The most bytes on disk: three quarters for the history, the rest for what is beside it.
    pub max_disk: u64,
}

/// Why the history cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite's answer.
    #[error("{path}: {source}")]
    Sql {
        /// The file.
        path: String,
        /// Why.
        source: rusqlite::Error,
    },
    /// The file system's answer.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Another server writes it.
    #[error("{path}: another fdguard serve uses it{}", holder(*pid))]
    InUse {
        /// The lock.
        path: String,
        /// The process that holds it; absent if the file does not say.
        pid: Option<u32>,
    },
    /// Another version wrote it.
    #[error("{path}: written by another version of fdguard (layout {found}, expected {LAYOUT})")]
    Layout {
        /// The file.
        path: String,
        /// Its layout.
        found: i64,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

impl StoreError {
    /// Whether the file itself is the problem, and not the disk or a permission.
    pub(crate) fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let Self::Sql { source, .. } = self else {
            return matches!(self, Self::Layout { .. });
        };
        let code = source.sqlite_error_code();
        let extended = source.sqlite_error().map(|error| error.extended_code);
        let is_cut = extended == Some(rusqlite::ffi::SQLITE_IOERR_SHORT_READ);
        is_cut || matches!(code, Some(DatabaseCorrupt | NotADatabase))
    }

    /// Whether there is no room on the disk: this may change.
    pub(crate) fn is_full(&self) -> bool {
        use rusqlite::ErrorCode::{CannotOpen, DiskFull, SystemIoFailure};
        match self {
            Self::Io { source, .. } => matches!(
                source.kind(),
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
            ),
            Self::Sql { path, source } => match source.sqlite_error_code() {
                Some(DiskFull) => true,
                // SQLite does not say why a file cannot be created.
                Some(CannotOpen | SystemIoFailure) => has_no_room(Path::new(path)),
                _ => false,
            },
            Self::InUse { .. } | Self::Layout { .. } => false,
        }
    }
}

/// Whether the disk of a file has no room for another one.
fn has_no_room(path: &Path) -> bool {
    const LEAST: u64 = 64 << 10;
    let dir = path.parent().unwrap_or(Path::new("/"));
    rustix::fs::statvfs(dir).is_ok_and(|disk| {
        let has_files = disk.f_files == 0 || disk.f_favail > 0;
        disk.f_bavail.saturating_mul(disk.f_frsize) < LEAST || !has_files
    })
}

/// An open file.
#[derive(Debug)]
pub(crate) struct StoreFile {
    pub(super) options: StoreOptions,
    pub(super) connection: Connection,
    /// Device and inode; `None` if they cannot be read.
    inode: Option<(u64, u64)>,
    /// Held as long as the history is written.
    _lock: File,
}

/// What was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetAside {
    pub(crate) to: PathBuf,
    pub(crate) why: String,
}

impl SetAside {
    /// In words.
    pub(crate) fn text(&self) -> String {
        let to = self.to.display();
        format!("the file was damaged and set aside as {to}: {}", self.why)
    }
}

/// Two servers on one history would write everything twice.
fn lock(history: &Path) -> Result<File, StoreError> {
    let path = history.with_extension("lock");
    let failed = |source| StoreError::Io {
        path: path.display().to_string(),
        source,
    };
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(failed)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut text = String::new();
            // A holder that cannot be read is not named.
            drop(file.read_to_string(&mut text));
            return Err(StoreError::InUse {
                path: path.display().to_string(),
                pid: text.trim().parse().ok(),
            });
        }
        // A file system without locks: as before there were any.
        Err(_) => return Ok(file),
    }
    // On a full disk the lock holds all the same, without a name.
    let named = file.set_len(0).and_then(|()| {
        use std::io::Write as _;
        writeln!(file, "{}", std::process::id())
    });
    drop(named);
    Ok(file)
}

impl StoreFile {
    /// Opens or creates the file. One that is damaged is renamed, and a new one begun.
    pub(crate) fn open(
        options: StoreOptions,
        now: Timestamp,
    ) -> Result<(Self, Option<SetAside>), StoreError> {
        let lock = lock(&options.path)?;
        match Self::open_sound(&options) {
            Ok(connection) => Ok((Self::new(options, connection, lock), None)),
            Err(error) if error.is_damage() => {
                let aside = set_aside(&options.path, now, &error.to_string())?;
                let connection = Self::open_sound(&options)?;
                Ok((Self::new(options, connection, lock), Some(aside)))
            }
            Err(error) => Err(error),
        }
    }

    /// Sets the file aside, whatever it looks like, and begins a new one.
    pub(crate) fn begin_anew(
        options: StoreOptions,
        now: Timestamp,
        why: &str,
    ) -> Result<(Self, SetAside), StoreError> {
        let lock = lock(&options.path)?;
        let aside = set_aside(&options.path, now, why)?;
        let connection = Self::open_sound(&options)?;
        Ok((Self::new(options, connection, lock), aside))
    }

    /// Opens a file on a disk without room, to read what was kept until its last orderly end.
    /// `None` if there is none that can be read.
    pub(crate) fn open_unchangeable(options: StoreOptions) -> Option<Self> {
        let lock = File::open(&options.path).ok()?;
        let address = sqlite_uri(&options.path, "immutable=1");
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(address, flags).ok()?;
        let found: i64 = pragma(&connection, "user_version").ok()?;
        (found == LAYOUT).then(|| Self::new(options, connection, lock))
    }

    fn new(options: StoreOptions, connection: Connection, lock: File) -> Self {
        Self {
            inode: inode(&options.path),
            options,
            connection,
            _lock: lock,
        }
    }

    /// Whether the path has another file by now, or none.
    pub(super) fn is_removed(&self) -> bool {
        self.inode.is_some() && inode(&self.options.path) != self.inode
    }

    fn open_sound(options: &StoreOptions) -> Result<Connection, StoreError> {
        let path = &options.path;
        let sql = |source| sql(path, source);
        let connection = Connection::open(path).map_err(sql)?;
        connection.busy_timeout(PATIENCE).map_err(sql)?;
        let page: i64 = pragma(&connection, "page_size").map_err(sql)?;
        let found: i64 = pragma(&connection, "user_version").map_err(sql)?;
        connection
            .pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))
            .map_err(sql)?;
        connection
            .execute_batch(
                "PRAGMA synchronous = normal; PRAGMA cache_size = -1024;
                 PRAGMA journal_size_limit = 4194304; PRAGMA wal_autocheckpoint = 400;",
            )
            .map_err(sql)?;
        limit_pages(&connection, options, page).map_err(sql)?;
        if found == 0 {
            lay_out(&connection, &[TABLES, RUNNING].concat()).map_err(sql)?;
        } else if (1..LAYOUT).contains(&found) {
            let changes = CHANGES.iter().filter(|(from, _)| *from >= found);
            let changes: String = changes.map(|(_, change)| *change).collect();
            lay_out(&connection, &changes).map_err(sql)?;
        } else if found != LAYOUT {
            let path = path.display().to_string();
            return Err(StoreError::Layout { path, found });
        }
        let verdict: String = connection
            .pragma_query_value(None, "quick_check", |row| row.get(0))
            .map_err(sql)?;
        if verdict != "ok" {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            return Err(sql(rusqlite::Error::SqliteFailure(code, Some(verdict))));
        }
        Ok(connection)
    }

    /// Writes a batch, whole or not at all.
    pub(crate) fn write(&mut self, batch: &HistoryBatch) -> Result<(), StoreError> {
        let path = self.options.path.clone();
        let mut write = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            for (service, sample) in &batch.samples {
                let id = service_id(&transaction, service)?;
                write_sample(&transaction, id, sample)?;
            }
            for (service, event) in &batch.events {
                let id = service_id(&transaction, service)?;
                write_event(&transaction, id, event)?;
            }
            transaction.commit()
        };
        write().map_err(|source| sql(&path, source))
    }

    /// Writes down that rows are missing.
    pub(crate) fn write_loss(
        &mut self,
        at: Timestamp,
        rows: u64,
        why: &str,
    ) -> Result<(), StoreError> {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        let values = params![at.as_millisecond(), rows, why];
        let written = self.connection.execute(
            "INSERT INTO loss (at, rows, why) VALUES (?1, ?2, ?3) ON CONFLICT (at) DO UPDATE
             SET rows = rows + excluded.rows, why = why || '; ' || excluded.why",
            values,
        );
        written
            .map(drop)
            .map_err(|source| sql(&self.options.path, source))
    }

    /// Remembers an accepted finding.
    pub(crate) fn accept(&mut self, accepted: &AcceptedFinding) -> Result<(), StoreError> {
        let key = &accepted.key;
        let mut write = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            let id = service_id(&transaction, &key.service)?;
            transaction.execute(
                "DELETE FROM accepted WHERE service = ?1 AND rule = ?2 AND class IS ?3
                 AND target IS ?4",
                params![id, key.rule, key.class, key.target],
            )?;
            transaction.execute(
                "INSERT INTO accepted VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    id,
                    key.rule,
                    key.class,
                    key.target,
                    accepted.reason,
                    accepted.until.map(Timestamp::as_millisecond)
                ],
            )?;
            transaction.commit()
        };
        write().map_err(|source| sql(&self.options.path, source))
    }

    /// What people accepted, and the highest number of a finding.
    pub(crate) fn accepted(&self) -> Result<(Vec<AcceptedFinding>, u64), StoreError> {
        let read = || -> rusqlite::Result<(Vec<AcceptedFinding>, u64)> {
            let mut statement = self.connection.prepare(
                "SELECT kind, name, rule, class, target, reason, until FROM accepted
                 JOIN service ON service.id = accepted.service",
            )?;
            let rows = statement.query_map([], |row| {
                let kind: String = row.get(0)?;
                let until: Option<i64> = row.get(6)?;
                let kind = ServiceKind::from_word(&kind).unwrap_or(ServiceKind::Command);
                Ok(AcceptedFinding {
                    key: FindingKey {
                        service: ServiceKey::new(kind, row.get::<_, String>(1)?),
                        rule: row.get(2)?,
                        class: row.get(3)?,
                        target: row.get(4)?,
                    },
                    reason: row.get(5)?,
                    until: until.and_then(|until| Timestamp::from_millisecond(until).ok()),
                })
            })?;
            let accepted = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            let highest: Option<i64> = self.connection.query_row(
                "SELECT max(json_extract(finding, '$.id')) FROM event WHERE finding IS NOT NULL",
                [],
                |row| row.get(0),
            )?;
            let highest = highest.and_then(|id| u64::try_from(id).ok()).unwrap_or(0);
            Ok((accepted, highest))
        };
        read().map_err(|source| sql(&self.options.path, source))
    }

    /// Hands every row of a query over.
    #[cfg(test)]
    pub(crate) fn read_rows(
        &self,
        query: &str,
        mut take: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), StoreError> {
        let mut read = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare(query)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                take(row)?;
            }
            Ok(())
        };
        read().map_err(|source| sql(&self.options.path, source))
    }

    /// Removes what is too old, and the oldest rows of a file that is too large.
    pub(crate) fn trim(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let keep = i64::try_from(self.options.keep.as_millis()).unwrap_or(i64::MAX);
        let before = now.as_millisecond().saturating_sub(keep);
        let trim = || -> rusqlite::Result<()> {
            for table in ["sample", "event", "loss", "attachment"] {
                let text = format!("DELETE FROM {table} WHERE at < ?1");
                self.connection.execute(&text, [before])?;
            }
            let most = most_bytes(&self.options) / 10 * 9;
            while self.used()? > most {
                let removed = self.connection.execute(
                    "DELETE FROM sample WHERE (service, at) IN
                     (SELECT service, at FROM sample ORDER BY at LIMIT ?1)",
                    [REMOVED],
                )?;
                let events = self.connection.execute(
                    "DELETE FROM event WHERE id IN (SELECT id FROM event ORDER BY at LIMIT ?1)",
                    [REMOVED / 20],
                )?;
                if removed + events == 0 {
                    break;
                }
            }
            self.connection.execute(
                "DELETE FROM service WHERE id NOT IN (SELECT service FROM sample)
                 AND id NOT IN (SELECT service FROM event)
                 AND id NOT IN (SELECT service FROM accepted)
                 AND id NOT IN (SELECT service FROM running)",
                [],
            )?;
            self.shrink()
        };
        let trimmed = trim().map_err(|source| sql(&self.options.path, source));
        state_limit::remove_beyond(&self.options.path, self.options.max_disk, self.bytes());
        trimmed
    }

    /// A file from the time of a larger limit is written anew.
    fn shrink(&self) -> rusqlite::Result<()> {
        let page = pragma(&self.connection, "page_size")?;
        let pages: i64 = pragma(&self.connection, "page_count")?;
        if pages * page <= most_bytes(&self.options).max(LEAST_PAGES * page) {
            return Ok(());
        }
        self.connection.execute_batch("VACUUM")?;
        let is_done = |_: &rusqlite::Row<'_>| Ok(());
        self.connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], is_done)?;
        limit_pages(&self.connection, &self.options, page)
    }

    /// Bytes in pages that hold something.
    fn used(&self) -> rusqlite::Result<i64> {
        let number = |name| pragma(&self.connection, name);
        Ok((number("page_count")? - number("freelist_count")?) * number("page_size")?)
    }

    /// Bytes on disk, the log of SQLite included.
    pub(crate) fn bytes(&self) -> u64 {
        let path = self.options.path.as_os_str();
        let ends = ["", "-wal", "-shm"];
        let sizes = ends.iter().filter_map(|end| {
            let mut name = path.to_owned();
            name.push(end);
            std::fs::metadata(name).ok()
        });
        sizes.map(|stat| stat.len()).sum()
    }
}

/// The most bytes of the file itself.
fn most_bytes(options: &StoreOptions) -> i64 {
    i64::try_from(state_limit::of_history(options.max_disk)).unwrap_or(i64::MAX)
}

/// A file that is larger already keeps its size until it is shrunk.
fn limit_pages(connection: &Connection, options: &StoreOptions, page: i64) -> rusqlite::Result<()> {
    let pages = (most_bytes(options) / page.max(512)).max(LEAST_PAGES);
    connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
}

/// Opens the file for reading only.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, StoreError> {
    std::fs::metadata(path).map_err(|source| StoreError::Io {
        path: path.display().to_string(),
        source,
    })?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| sql(path, error))?;
    connection
        .busy_timeout(PATIENCE)
        .map_err(|error| sql(path, error))?;
    let found: i64 = pragma(&connection, "user_version").map_err(|error| sql(path, error))?;
    if found != LAYOUT {
        let path = path.display().to_string();
        return Err(StoreError::Layout { path, found });
    }
    Ok(connection)
}

pub(super) fn sql(path: &Path, source: rusqlite::Error) -> StoreError {
    StoreError::Sql {
        path: path.display().to_string(),
        source,
    }
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Renames the file and its log, so that nothing of them is lost.
fn set_aside(path: &Path, now: Timestamp, why: &str) -> Result<SetAside, StoreError> {
    let stamp = now.as_second();
    let with = |end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let to = with(&format!(".damaged-{stamp}"));
    std::fs::rename(path, &to).map_err(|source| StoreError::Io {
        path: path.display().to_string(),
        source,
    })?;
    for end in ["-wal", "-shm"] {
        // There may be none.
        drop(std::fs::rename(
            with(end),
            with(&format!(".damaged-{stamp}{end}")),
        ));
    }
    let why = why.to_owned();
    Ok(SetAside { to, why })
}

/// Device and inode of a file.
fn inode(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let stat = std::fs::metadata(path).ok()?;
    Some((stat.dev(), stat.ino()))
}

/// Changes the tables to the layout of this version, whole or not at all.
fn lay_out(connection: &Connection, change: &str) -> rusqlite::Result<()> {
    let change = format!("BEGIN; {change} PRAGMA user_version = {LAYOUT}; COMMIT;");
    connection.execute_batch(&change)
}

pub(super) fn service_id(connection: &Connection, service: &ServiceKey) -> rusqlite::Result<i64> {
    let (kind, name) = (service.kind.word(), service.name.as_str());
    let known = connection
        .prepare_cached("SELECT id FROM service WHERE kind = ?1 AND name = ?2")?
        .query_row([kind, name], |row| row.get(0))
        .optional()?;
    if let Some(id) = known {
        return Ok(id);
    }
    connection.execute(
        "INSERT INTO service (kind, name) VALUES (?1, ?2)",
        [kind, name],
    )?;
    Ok(connection.last_insert_rowid())
}

fn write_sample(connection: &Connection, id: i64, sample: &HistorySample) -> rusqlite::Result<()> {
    let classes = sample.classes.as_ref();
    let classes = classes.and_then(|classes| serde_json::to_string(classes).ok());
    let targets = sample.targets.as_ref();
    let targets = targets.and_then(|targets| serde_json::to_string(targets).ok());
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO sample VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            id,
            sample.at.as_millisecond(),
            number(Some(sample.processes)),
            number(sample.open_fds),
            number(sample.limit),
            sample.usage_ratio,
            sample.verdict,
            classes,
            targets,
        ])
        .map(drop)
}

fn write_event(connection: &Connection, id: i64, event: &HistoryEvent) -> rusqlite::Result<()> {
    let finding = event.finding.as_ref();
    let finding = finding.and_then(|finding| serde_json::to_string(finding).ok());
    connection
        .prepare_cached(
            "INSERT INTO event (service, at, event, text, deploy, finding)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            id,
            event.at.as_millisecond(),
            event.event,
            event.text,
            event.deploy,
            finding,
        ])
        .map(drop)
}

fn number(value: Option<u64>) -> Option<i64> {
    value.map(|value| i64::try_from(value).unwrap_or(i64::MAX))
}
