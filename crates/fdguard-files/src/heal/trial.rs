//! Tries repairs on copies until one passes SQLite's integrity check.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use super::rebuild::{self, Candidate};
use crate::check::{CheckDepth, complaints, restrict, settled_copy};
use crate::holding::HolderRole;
use crate::inspection::matters;
use crate::{Error, read};

/// A sound copy.
#[derive(Debug)]
pub(super) struct Sound {
    /// Where it is.
    pub(super) path: PathBuf,
    /// How it was healed, for people.
    pub(super) by: &'static str,
}

/// A directory next to the database, so that a copy in it can be swapped in.
pub(super) fn dir(database: &Path) -> Result<TempDir, Error> {
    let parent = database.parent().unwrap_or(Path::new("/"));
    let made = tempfile::Builder::new()
        .prefix(".fdguard-heal-")
        .tempdir_in(parent);
    made.map_err(|error| Error::io(parent, "cannot create a copy in", error))
}

/// Heals a copy in this directory, or returns the reason why not.
pub(super) fn heal_copy(database: &Path, dir: &Path) -> Result<Result<Sound, String>, Error> {
    let file = read::open(database)?;
    let image = read::image(database, &file)?;
    let copy = dir.join("database");
    let mut why = match attempt(database, &copy, None)? {
        Ok(()) => {
            let by = if image.has_log() {
                "by a checkpoint (page 1 was in the WAL)"
            } else {
                "by SQLite's own recovery"
            };
            return Ok(Ok(Sound { path: copy, by }));
        }
        Err(why) => why,
    };
    let mut page = |number: u32, size: u32| {
        let at = u64::from(number - 1) * u64::from(size);
        read::piece(&file, at, u64::from(size))
            .ok()
            .filter(|bytes| bytes.len() == size as usize)
    };
    let candidates = match rebuild::candidates(&image, &mut page) {
        Ok(candidates) => candidates,
        Err(why) => return Ok(Err(why)),
    };
    for candidate in &candidates {
        match attempt(database, &copy, Some(candidate))? {
            Ok(()) => {
                let by = "by rebuilding the header";
                return Ok(Ok(Sound { path: copy, by }));
            }
            Err(reason) => why = reason,
        }
    }
    Ok(Err(format!(
        "no rebuilt header repairs it: the damage extends beyond the header ({why})"
    )))
}

/// Tries one copy, with this header or its own.
fn attempt(
    database: &Path,
    copy: &Path,
    header: Option<&Candidate>,
) -> Result<Result<(), String>, Error> {
    for role in [
        HolderRole::Main,
        HolderRole::Wal,
        HolderRole::Shm,
        HolderRole::Journal,
    ] {
        // Left by an earlier attempt.
        drop(std::fs::remove_file(role.path(copy)));
    }
    if !settled_copy(database, copy)? {
        return Ok(Err("the database is being written continuously".to_owned()));
    }
    let failed = |error| Error::io(copy, "cannot write the copy", error);
    if let Some(candidate) = header {
        let file = OpenOptions::new().write(true).open(copy).map_err(failed)?;
        file.write_all_at(&candidate.bytes, 0).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let whole = size - size % u64::from(candidate.page_size);
        file.set_len(whole).map_err(failed)?;
    }
    if let Err(why) = sound(copy) {
        return Ok(Err(why));
    }
    let left = read::image(copy, &File::open(copy).map_err(failed)?)?.judge();
    if let Some(finding) = left.iter().find(|one| matters(one)) {
        return Ok(Err(finding.message.clone()));
    }
    File::open(copy)
        .and_then(|file| file.sync_all())
        .map_err(failed)?;
    Ok(Ok(()))
}

/// Opens a copy, checkpoints its log, and runs SQLite's full check.
fn sound(copy: &Path) -> Result<(), String> {
    // Before there is a connection: opening and closing the file next to one would drop its locks.
    let cells = first_page_cells(copy);
    let size = copy.metadata().map_or(0, |meta| meta.len());
    let said = |error: rusqlite::Error| error.to_string();
    let connection =
        Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(said)?;
    restrict(&connection, size).map_err(said)?;
    let found = complaints(&connection, CheckDepth::Full).map_err(said)?;
    if let Some(first) = found.first() {
        return Err(first.clone());
    }
    let schema: u64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(said)?;
    // An empty database passes every check, and everything would be lost.
    if schema == 0 && cells != Some(0) {
        return Err("the result would be an empty database".to_owned());
    }
    let busy: i64 = connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .map_err(said)?;
    if busy != 0 {
        return Err("the WAL could not be checkpointed".to_owned());
    }
    connection.close().map_err(|(_, error)| error.to_string())?;
    let log = HolderRole::Wal.path(copy);
    if log.metadata().is_ok_and(|meta| meta.len() > 0) {
        return Err("the WAL could not be checkpointed".to_owned());
    }
    Ok(())
}

fn first_page_cells(copy: &Path) -> Option<u16> {
    let bytes = read::piece(&File::open(copy).ok()?, 103, 2).ok()?;
    Some(u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]))
}
