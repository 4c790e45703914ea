//! Repairs the end of a log: torn data is saved elsewhere and synced before the log is truncated.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::tail::{self, Mend, Tear};
use crate::Error;
use crate::read::piece;

/// Bytes read at once.
const BLOCK: u64 = 64 << 10;
/// The longest last line that is examined; a longer one is moved as a whole.
const LONGEST: u64 = 16 << 20;

/// The repair of a log's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// What was wrong.
    pub tears: Vec<Tear>,
    /// Complete records that were found in it and are lines now.
    pub records: usize,
    /// Bytes of the line as it was.
    pub bytes: u64,
    /// Where the original line is kept; `None` if nothing was removed from it.
    pub kept_at: Option<PathBuf>,
}

/// Repairs the end of a log that only this process writes, if needed.
pub(super) fn mend(file: &File, path: &Path) -> Result<Option<Repair>, Error> {
    let failed = |error| Error::io(path, "cannot repair", error);
    let size = file.metadata().map_err(failed)?.len();
    let start = last_line(file, size).map_err(failed)?;
    let length = size - start;
    let todo = if length > LONGEST {
        Some(Mend::too_long())
    } else {
        tail::judge(&piece(file, start, length).map_err(failed)?)
    };
    let Some(todo) = todo else {
        return Ok(None);
    };
    let kept_at = if todo.is_kept {
        Some(keep(file, path, start, size)?)
    } else {
        None
    };
    let stays = start + todo.stays as u64;
    if stays < size {
        file.set_len(stays).map_err(failed)?;
    }
    (&mut &*file).write_all(&todo.added).map_err(failed)?;
    file.sync_data().map_err(failed)?;
    Ok(Some(Repair {
        records: todo.records(),
        tears: todo.tears,
        bytes: length,
        kept_at,
    }))
}

/// Offset of the last line: after the last newline that is not the end.
fn last_line(file: &File, size: u64) -> io::Result<u64> {
    let mut end = size.saturating_sub(1);
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        let block = piece(file, start, end - start)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Writes the last line next to the log, under the next free name. After a crash in the middle it
/// is already there.
fn keep(file: &File, path: &Path, start: u64, size: u64) -> Result<PathBuf, Error> {
    let mut before = None;
    let mut number = 1;
    let (beside, new) = loop {
        let beside = named(path, number);
        let new = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside);
        match new {
            Ok(new) => break (beside, new),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => before = Some(beside),
            Err(error) => return Err(Error::io(&beside, "cannot save the torn line in", error)),
        }
        number += 1;
    };
    let failed = |error| Error::io(&beside, "cannot save the torn line in", error);
    if let Some(before) = before.filter(|before| is_same(file, start, size, before)) {
        std::fs::remove_file(&beside).map_err(failed)?;
        return Ok(before);
    }
    if let Err(error) = copy(file, &new, start, size).and_then(|()| new.sync_all()) {
        // A partial copy would look complete.
        drop(std::fs::remove_file(&beside));
        return Err(failed(error));
    }
    sync_dir(path).map_err(failed)?;
    Ok(beside)
}

fn named(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".torn-{number}"));
    name.into()
}

fn copy(file: &File, mut to: &File, start: u64, end: u64) -> io::Result<()> {
    let mut at = start;
    while at < end {
        let block = piece(file, at, BLOCK.min(end - at))?;
        if block.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_all(&block)?;
        at += block.len() as u64;
    }
    Ok(())
}

/// Whether this was already saved.
fn is_same(file: &File, start: u64, size: u64, kept: &Path) -> bool {
    let Ok(kept) = File::open(kept) else {
        return false;
    };
    if kept.metadata().map(|meta| meta.len()).ok() != Some(size - start) {
        return false;
    }
    let mut block = vec![0; usize::try_from(BLOCK).unwrap_or(4096)];
    let mut at = 0;
    while at < size - start {
        let Ok(read @ 1..) = kept.read_at(&mut block, at) else {
            return false;
        };
        let Ok(ours) = piece(file, start + at, read as u64) else {
            return false;
        };
        if ours != block[..read] {
            return false;
        }
        at += read as u64;
    }
    true
}

/// A new name is on disk once its directory is synced.
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}
