//! Runs SQLite's integrity check, never on a file that may be written: either on the file itself as
//! immutable, or on a copy.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fdguard_core::Gap;
use fdguard_core::sqlite_uri::sqlite_uri;
use fdguard_core::units::duration;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde::Serialize;

use crate::holding::HolderRole;
use crate::read::{Stamp, open, piece};
use crate::sqlite::wal;
use crate::{Error, lease};

/// How often to retry copying a database that is being written.
const ATTEMPTS: usize = 5;
/// Maximum number of problems that SQLite reports.
const MOST: u32 = 20;
/// A check of an empty file may take this long, plus time for each MiB. An ordinary one takes some
/// milliseconds per MiB: a slower one was crafted to be slow.
const TIME: Duration = Duration::from_secs(5);
const TIME_PER_MIB: Duration = Duration::from_secs(1);
/// Virtual machine steps between two checks of the clock.
const STEPS: i32 = 10_000;
/// No value is much longer than its file, except what an index expression computes from a short
/// one.
const ROOM: u64 = 1 << 16;

/// Pattern matching does not check the clock and takes time proportional to both lengths.
const LONGEST_PATTERN: i32 = 4096;

/// How much to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckDepth {
    /// The structure (`quick_check`).
    Quick,
    /// Also whether the indexes match the tables (`integrity_check`).
    Full,
}

impl CheckDepth {
    /// SQLite's name for it.
    #[must_use]
    pub fn pragma(self) -> &'static str {
        match self {
            Self::Quick => "quick_check",
            Self::Full => "integrity_check",
        }
    }
}

/// Result of SQLite's check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// How much was checked.
    pub depth: CheckDepth,
    /// Whether on a copy.
    pub copied: bool,
    /// Whether all is well.
    pub ok: bool,
    /// What is wrong, in SQLite's words.
    pub problems: Vec<String>,
}

/// A check, or why there was none.
pub type CheckOutcome = Result<CheckResult, Gap>;

/// Checks a database. `is_alone` means that it has no WAL or journal to be read with it.
pub fn check(database: &Path, depth: CheckDepth, is_alone: bool) -> Result<CheckOutcome, Error> {
    let file = open(database)?;
    if is_alone && lease::ask(&file) == lease::LeaseAnswer::NoWriter {
        let before = Stamp::read(&file).ok();
        let outcome = ask(&unchanging(database), depth, false);
        if before.is_some() && before == Stamp::at(database) {
            return Ok(outcome);
        }
    }
    let dir = match tempfile::Builder::new().prefix("fdguard-check-").tempdir() {
        Ok(dir) => dir,
        Err(error) => return Ok(Err(no_copy(&error.to_string()))),
    };
    let copy = dir.path().join("database");
    match settled_copy(database, &copy) {
        Ok(true) => Ok(ask(&Target::Copy(&copy), depth, true)),
        Ok(false) => Ok(Err(no_copy("the database is being written continuously"))),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {
            Ok(Err(no_copy("no space left")))
        }
        Err(error) => Err(error),
    }
}

fn no_copy(why: &str) -> Gap {
    Gap::new(
        "SQLite's integrity check",
        format!("cannot copy the database: {why}"),
        "try again when it is less busy, or set TMPDIR to a directory with enough space",
    )
}

enum Target<'a> {
    /// With its URI for SQLite.
    Unchanging(&'a Path, String),
    Copy(&'a Path),
}

impl Target<'_> {
    /// Bytes of the file, including its log.
    fn size(&self) -> u64 {
        let path = match self {
            Self::Unchanging(path, _) => path,
            Self::Copy(path) => *path,
        };
        let roles = [HolderRole::Main, HolderRole::Wal].into_iter();
        let sizes = roles.filter_map(|role| role.path(path).metadata().ok());
        sizes.map(|meta| meta.len()).sum()
    }
}

/// The file opened as immutable: no lock is taken and no side file is read.
fn unchanging(database: &Path) -> Target<'_> {
    let uri = sqlite_uri(database, "mode=ro&immutable=1");
    Target::Unchanging(database, uri)
}

fn ask(target: &Target<'_>, depth: CheckDepth, copied: bool) -> CheckOutcome {
    let connection = match target {
        Target::Unchanging(_, uri) => Connection::open_with_flags(
            uri,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
        ),
        Target::Copy(path) => Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE),
    };
    let size = target.size();
    let problems = connection.and_then(|connection| {
        restrict(&connection, size)?;
        complaints(&connection, depth)
    });
    let done = |problems: Vec<String>| CheckResult {
        depth,
        copied,
        ok: problems.is_empty(),
        problems,
    };
    match problems {
        Ok(problems) => Ok(done(problems)),
        Err(error) if is_damage(&error) => Ok(done(vec![error.to_string()])),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            let limit = duration(time_limit(size).as_secs_f64());
            Err(Gap::new(
                "SQLite's integrity check",
                format!("not finished after {limit}, far too long for a database of this size"),
                "if you trust the file, run `PRAGMA integrity_check` in the sqlite3 shell",
            ))
        }
        Err(error) => Err(Gap::new(
            "SQLite's integrity check",
            format!("SQLite cannot run it: {error}"),
            "run `PRAGMA integrity_check` in the program that owns this database",
        )),
    }
}

/// Restricts what an untrusted schema can do: no unsafe functions, no unbounded values, no endless
/// queries.
pub(crate) fn restrict(connection: &Connection, size: u64) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    let longest = size.saturating_mul(4).saturating_add(ROOM);
    let longest = i32::try_from(longest).unwrap_or(i32::MAX);
    for limit in [
        Limit::SQLITE_LIMIT_LENGTH,
        Limit::SQLITE_LIMIT_SQL_LENGTH,
        Limit::SQLITE_LIMIT_VDBE_OP,
    ] {
        let present = connection.limit(limit)?;
        connection.set_limit(limit, longest.min(present))?;
    }
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, LONGEST_PATTERN)?;
    let deadline = Instant::now() + time_limit(size);
    connection.progress_handler(STEPS, Some(move || Instant::now() > deadline));
    Ok(())
}

fn time_limit(size: u64) -> Duration {
    let mib = u32::try_from(size >> 20).unwrap_or(u32::MAX);
    TIME.saturating_add(TIME_PER_MIB.saturating_mul(mib))
}

/// SQLite's complaints; empty if all is well.
pub(crate) fn complaints(
    connection: &Connection,
    depth: CheckDepth,
) -> rusqlite::Result<Vec<String>> {
    let pragma = depth.pragma();
    let mut statement = connection.prepare(&format!("PRAGMA {pragma}({MOST})"))?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut said = rows.collect::<rusqlite::Result<Vec<String>>>()?;
    said.retain(|line| line != "ok");
    Ok(said)
}

/// Whether SQLite's error is about the file's content, and not about the disk, locks or unsupported
/// features.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    let is_content = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    );
    // Invalid text appears as an error of the wrapper.
    is_content
        || matches!(
            error,
            rusqlite::Error::Utf8Error(..) | rusqlite::Error::FromSqlConversionFailure(..)
        )
        || error.to_string().starts_with("malformed database schema")
}

/// Copies a database with its WAL and journal in a consistent state; `false` if its writers left no
/// time for it.
///
/// The database is copied first. Until the WAL restarts, it has every page that a checkpoint moves
/// meanwhile.
pub fn settled_copy(database: &Path, copy: &Path) -> Result<bool, Error> {
    for _ in 0..ATTEMPTS {
        let before = State::of(database);
        for role in [HolderRole::Main, HolderRole::Wal, HolderRole::Journal] {
            copy_one(database, copy, role)?;
        }
        if before.fits(&State::of(database)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn copy_one(database: &Path, copy: &Path, role: HolderRole) -> Result<(), Error> {
    let from = role.path(database);
    let to = role.path(copy);
    match copy_file(&from, &to) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && role != HolderRole::Main => {
            // Left by an earlier attempt.
            drop(std::fs::remove_file(&to));
            Ok(())
        }
        Err(error) => Err(Error::io(&from, "cannot copy", error)),
    }
}

/// Copies only the bytes; the copy is owned by this process, whatever the mode of the original.
pub(crate) fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = File::create(to)?;
    io::copy(&mut source, &mut target)?;
    Ok(())
}

/// What must not change while a copy is made.
#[derive(Debug, PartialEq, Eq)]
struct State {
    database: Option<Stamp>,
    log: Option<Vec<u8>>,
    journal: Option<Stamp>,
}

impl State {
    fn of(database: &Path) -> Self {
        let head = |path: PathBuf| piece(&File::open(path).ok()?, 0, wal::HEAD as u64).ok();
        Self {
            database: Stamp::at(database),
            log: head(HolderRole::Wal.path(database)).filter(|head| !head.is_empty()),
            journal: Stamp::at(&HolderRole::Journal.path(database)),
        }
    }

    fn fits(&self, later: &Self) -> bool {
        let id = |state: &Self| state.database.map(|stamp| stamp.id);
        if self.log.is_some() {
            return self.log == later.log && self.journal == later.journal && id(self) == id(later);
        }
        self == later
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use rusqlite::Connection;

    use super::{CheckDepth, ask, unchanging};

    #[test]
    fn a_file_of_any_name_is_checked_as_unchanging() {
        let dir = tempfile::tempdir().unwrap();
        for name in [&b"50%25 a.db"[..], b"what?.db", b"a#1&b=c.db", b"\xff.db"] {
            let path = dir.path().join(OsStr::from_bytes(name));
            let connection = Connection::open(&path).unwrap();
            connection.execute_batch("CREATE TABLE t(a)").unwrap();
            connection.close().unwrap();
            let outcome = ask(&unchanging(&path), CheckDepth::Quick, false);
            assert!(outcome.unwrap().ok, "{}", path.display());
        }
    }
}
