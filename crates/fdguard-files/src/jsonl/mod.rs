//! A JSON Lines log with one writer: each line is written completely or not at all.
//!
//! The lock is on the log itself and belongs to the open file description. It needs no second
//! descriptor, leaves no lock file behind, and follows the log when it is renamed; the successor
//! has its own lock. The lock excludes only writers that ask for it; writes by others are detected
//! by the file size.
//!
//! Opening repairs the last line: a torn line is moved to `NAME.torn-N` next to the log, never
//! dropped. Earlier lines are not checked. All functions block.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::{lock, sys};

mod mend;
mod tail;

pub use mend::Repair;
pub use tail::Tear;
#[cfg(feature = "fuzzing")]
pub use tail::fuzz_tail;

/// When lines are synced to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncing {
    /// When the writer is closed.
    OnClose,
    /// Each line before `append` returns.
    EachLine,
    /// With the first line that comes this long after the one before; see [`JsonlWriter::due`].
    Every(Duration),
}

/// How to write.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// When lines are synced to disk.
    pub sync: Syncing,
    /// How long to wait for another writer.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sync: Syncing::OnClose,
            patience: Duration::from_secs(10),
        }
    }
}

/// Why a line was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file: missing, locked, no space. The log is unchanged.
    #[error(transparent)]
    File(#[from] crate::Error),
    /// The value cannot be represented in JSON.
    #[error("cannot write to {}: value cannot be encoded as JSON: {source}", path.display())]
    Encode {
        /// The log.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The value is raw JSON with a newline in it.
    #[error("cannot write to {}: value contains a newline", path.display())]
    Newline {
        /// The log.
        path: PathBuf,
    },
    /// The log was deleted: the line would be lost.
    #[error("cannot write to {}: the file was deleted while it was open", path.display())]
    Deleted {
        /// The log.
        path: PathBuf,
    },
    /// Lines are in the file but may not be on disk. The kernel reports this only once, so later
    /// errors repeat the first.
    #[error("cannot sync {}: {unsynced} lines may not be on disk: {why}", path.display())]
    Unsynced {
        /// The log.
        path: PathBuf,
        /// How many.
        unsynced: u64,
        /// The first system error.
        why: String,
    },
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WriteResult {
    /// Lines.
    pub written: u64,
    /// How many of them are on disk.
    pub synced: u64,
}

/// Failures of writers that were dropped instead of closed.
static FAILED_DROPS: AtomicU64 = AtomicU64::new(0);

/// How many writers of this process were dropped and could not sync their last lines.
#[must_use]
pub fn failed_drops() -> u64 {
    FAILED_DROPS.load(Ordering::Relaxed)
}

/// The one writer of a log. Closing or dropping it syncs its lines and lets others write.
#[derive(Debug)]
pub struct JsonlWriter {
    file: File,
    path: PathBuf,
    sync: Syncing,
    /// End of the last complete line.
    end: u64,
    /// End of a partial line that could not be removed.
    spoiled: Option<u64>,
    is_named: bool,
    written: u64,
    synced: u64,
    unsynced_since: Option<Instant>,
    sync_failed: Option<String>,
    repairs: Vec<Repair>,
    disturbed: u64,
}

impl JsonlWriter {
    /// Opens a log, creating it if missing, and repairs its end. Fails if another writer holds it
    /// for too long, and names that writer.
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        let file = lock::patiently(path, options.patience, || attempt(path))?;
        let repair = mend::mend(&file, path)?;
        let failed = |error| crate::Error::io(path, "cannot read", error);
        Ok(Self {
            end: file.metadata().map_err(failed)?.len(),
            file,
            path: path.to_owned(),
            sync: options.sync,
            spoiled: None,
            is_named: false,
            written: 0,
            synced: 0,
            unsynced_since: None,
            sync_failed: None,
            repairs: repair.into_iter().collect(),
            disturbed: 0,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one line. On an error the log ends with the previous line, except for
    /// [`Error::Unsynced`].
    pub fn append<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let mut line = serde_json::to_vec(value).map_err(|source| Error::Encode {
            path: self.path.clone(),
            source,
        })?;
        if line.contains(&b'\n') {
            return Err(Error::Newline {
                path: self.path.clone(),
            });
        }
        line.push(b'\n');
        self.finish_write()?;
        self.write(&line)
            .map_err(|error| crate::Error::io(&self.path, "cannot write", error))?;
        self.end += line.len() as u64;
        self.written += 1;
        self.unsynced_since.get_or_insert_with(Instant::now);
        match self.sync {
            Syncing::OnClose => Ok(()),
            Syncing::EachLine => self.sync(),
            Syncing::Every(_) if self.due().is_some_and(|due| due <= Instant::now()) => self.sync(),
            Syncing::Every(_) => Ok(()),
        }
    }

    /// When the lines so far should be synced, for a caller with a timer: nothing syncs between two
    /// lines.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        match self.sync {
            Syncing::Every(time) => self.unsynced_since.map(|since| since + time),
            _ => None,
        }
    }

    /// Syncs all lines to disk.
    pub fn sync(&mut self) -> Result<(), Error> {
        if self.sync_failed.is_none() {
            match self.sync_now() {
                Ok(()) => {
                    self.synced = self.written;
                    self.unsynced_since = None;
                    return Ok(());
                }
                // The kernel has dropped the pages that failed: a second attempt would succeed
                // without them.
                Err(error) => self.sync_failed = Some(error.to_string()),
            }
        }
        Err(Error::Unsynced {
            path: self.path.clone(),
            unsynced: self.written - self.synced,
            why: self.sync_failed.clone().unwrap_or_default(),
        })
    }

    /// Lines that were written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// How many of them are on disk.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// The repairs, starting with those made on opening.
    #[must_use]
    pub fn repairs(&self) -> &[Repair] {
        &self.repairs
    }

    /// How often another writer changed the log.
    #[must_use]
    pub fn disturbed(&self) -> u64 {
        self.disturbed
    }

    /// Syncs all lines and lets others write.
    pub fn close(mut self) -> Result<WriteResult, Error> {
        let synced = self.finish();
        synced.map(|()| WriteResult {
            written: self.written,
            synced: self.synced,
        })
    }

    fn finish(&mut self) -> Result<(), Error> {
        let is_done = self.unsynced_since.is_none();
        let synced = if is_done { Ok(()) } else { self.sync() };
        // Reported once: the drop after a close has nothing left to do.
        self.unsynced_since = None;
        // A child that another thread is about to start also has this descriptor, until it calls
        // exec.
        let _ = sys::unlock(&self.file);
        synced
    }

    fn sync_now(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        if !self.is_named {
            mend::sync_dir(&self.path)?;
            self.is_named = true;
        }
        Ok(())
    }

    /// Ensures that the next line starts on a new line.
    fn finish_write(&mut self) -> Result<(), Error> {
        let failed = |error| crate::Error::io(&self.path, "cannot read", error);
        let meta = self.file.metadata().map_err(failed)?;
        if meta.nlink() == 0 {
            return Err(Error::Deleted {
                path: self.path.clone(),
            });
        }
        if self.spoiled == Some(meta.len()) {
            let failed = |error| crate::Error::io(&self.path, "cannot truncate", error);
            self.file.set_len(self.end).map_err(failed)?;
        } else if meta.len() != self.end {
            self.disturbed += 1;
            self.repairs.extend(mend::mend(&self.file, &self.path)?);
            self.end = self.file.metadata().map_err(failed)?.len();
        }
        self.spoiled = None;
        Ok(())
    }

    /// Usually one call. A partial line left by a full disk is removed.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let mut done = 0;
        let error = loop {
            match (&self.file).write(&line[done..]) {
                Ok(0) => break io::ErrorKind::WriteZero.into(),
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error,
            }
            if done == line.len() {
                return Ok(());
            }
        };
        if done > 0 {
            let half = self.end + done as u64;
            // Data added by another writer must not be truncated.
            let is_ours = self.file.metadata().is_ok_and(|meta| meta.len() == half);
            if !is_ours || self.file.set_len(self.end).is_err() {
                self.spoiled = Some(half);
            }
        }
        Err(error)
    }
}

impl Drop for JsonlWriter {
    fn drop(&mut self) {
        if self.finish().is_err() {
            FAILED_DROPS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The log, locked; `None` if another writer holds it, or it was just renamed.
fn attempt(path: &Path) -> Result<Option<File>, crate::Error> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| crate::Error::io(path, "cannot open", error))?;
    let meta = file.metadata();
    let meta = meta.map_err(|error| crate::Error::io(path, "cannot read", error))?;
    if !meta.is_file() {
        return Err(crate::Error::NotAFile {
            path: path.to_owned(),
            what: "not a regular file",
        });
    }
    match sys::lock(&file) {
        Ok(()) => {}
        Err(Errno::AGAIN | Errno::ACCESS) => return Ok(None),
        Err(error) => return Err(crate::Error::io(path, "cannot lock", error)),
    }
    let here = path.metadata().map(|meta| (meta.dev(), meta.ino()));
    if here.is_ok_and(|here| here == (meta.dev(), meta.ino())) {
        return Ok(Some(raised(file)));
    }
    let _ = sys::unlock(&file);
    Ok(None)
}

/// Moves the file to a high descriptor number, which stale numbers do not reach; if that is not
/// possible it stays where it is.
fn raised(file: File) -> File {
    let soft = getrlimit(Resource::Nofile).current;
    let fd = OwnedFd::from(file);
    fcntl_dupfd_cloexec(&fd, floor(soft)).unwrap_or(fd).into()
}

/// First high descriptor number for this soft limit: below the limit, and below what `select`
/// supports.
fn floor(soft: Option<u64>) -> i32 {
    let limit = soft.map_or(1024, |soft| soft.min(1024));
    let floor = if limit >= 128 { limit - 64 } else { limit / 2 };
    i32::try_from(floor).unwrap_or(0)
}
