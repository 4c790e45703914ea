//! A lock with a deadline whose error names the holder.
//!
//! The lock belongs to the open file description, not to the process: two threads exclude each
//! other, and closing another descriptor of the file does not drop it. The lock file is removed
//! when the lock is released; a waiter on the removed file starts over.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fdguard_probe::Probe;
use fdguard_probe::linux::holders::{HoldKind, SoughtFile};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::{Dir, Error, sys};

/// How long to wait between two attempts, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct LockFile {
    file: File,
    /// Absent: the file with this name belongs to another process.
    place: Option<Place>,
}

/// Where a lock file is.
#[derive(Debug)]
enum Place {
    Path(PathBuf),
    /// In a directory that is held open, whatever its path is now.
    In(Dir, OsString),
}

impl Place {
    fn open(&self) -> std::io::Result<File> {
        match self {
            Self::In(dir, name) => dir.open_or_create(name),
            Self::Path(path) => OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                // Another process may have put a link there.
                .custom_flags(i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default())
                .open(path),
        }
    }

    /// Device and inode of the current file.
    fn id(&self) -> Option<(u64, u64)> {
        match self {
            Self::In(dir, name) => dir.stat_entry(name).ok().flatten().map(|entry| entry.id),
            Self::Path(path) => std::fs::symlink_metadata(path).ok().map(|meta| id(&meta)),
        }
    }

    fn remove(&self) {
        // A leftover lock file does no harm.
        match self {
            Self::In(dir, name) => drop(dir.remove(name)),
            Self::Path(path) => drop(std::fs::remove_file(path)),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::In(dir, name) => dir.path().join(name),
            Self::Path(path) => path.clone(),
        }
    }
}

fn id(meta: &std::fs::Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

impl LockFile {
    /// Takes the lock of this lock file, creating the file if missing. Fails at the deadline and
    /// names the holder.
    pub fn acquire(path: &Path, patience: Duration) -> Result<Self, Error> {
        patiently(path, patience, || Self::attempt(path))
    }

    /// Takes the lock if it is free.
    pub(crate) fn attempt(path: &Path) -> Result<Option<Self>, Error> {
        Self::attempt_at(Place::Path(path.to_owned()))
    }

    /// The same for a lock file in a directory that is held open.
    pub(crate) fn attempt_in(dir: &Dir, name: &OsStr) -> Result<Option<Self>, Error> {
        Self::attempt_at(Place::In(dir.clone(), name.to_owned()))
    }

    fn attempt_at(place: Place) -> Result<Option<Self>, Error> {
        let failed = |what, error| Error::io(&place.path(), what, error);
        let file = place
            .open()
            .map_err(|error| failed("cannot open the lock file", error))?;
        match sys::lock(&file) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(failed("locking", error.into())),
        }
        // The previous holder may have removed the file that was just locked.
        let is_there = is_at(&place, &file);
        let lock = Self {
            file,
            place: is_there.then_some(place),
        };
        Ok(lock.place.is_some().then_some(lock))
    }
}

fn is_at(place: &Place, file: &File) -> bool {
    let ours = file.metadata().map(|meta| id(&meta)).ok();
    ours.is_some() && place.id() == ours
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if let Some(place) = self.place.take()
            && is_at(&place, &self.file)
        {
            place.remove();
        }
        // A child that another thread is about to start also has this descriptor, until it calls
        // exec.
        let _ = sys::unlock(&self.file);
    }
}

/// Retries until it succeeds or the time is up; then it names the holder of the lock.
pub(crate) fn patiently<T>(
    path: &Path,
    patience: Duration,
    mut attempt: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let deadline = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(taken) = attempt()? {
            return Ok(taken);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Locked {
                path: path.to_owned(),
                holder: holder(path),
            });
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The holder of a file's lock, for people. A lock of an open file description names no process: it
/// is found by its descriptor.
pub(crate) fn holder(path: &Path) -> String {
    let unknown = "a process that cannot be examined".to_owned();
    let (Ok(probe), Ok(meta), Ok(whole)) = (Probe::new(), path.metadata(), path.canonicalize())
    else {
        return unknown;
    };
    let sought = SoughtFile {
        path: whole.into_os_string().into_encoded_bytes(),
        id: Some((meta.dev(), meta.ino())),
    };
    let Ok(found) = probe.holders(std::slice::from_ref(&sought), false) else {
        return unknown;
    };
    let locks = |held: &&fdguard_probe::linux::holders::FileHold| {
        held.locks.iter().any(|lock| lock.access == "WRITE")
    };
    let named = found.held.iter().find(locks).map(|held| match held.by {
        HoldKind::Descriptor { fd, .. } => format!(
            "{} (pid {}, descriptor {fd})",
            held.comm.to_lossy(),
            held.pid
        ),
        _ => format!("{} (pid {})", held.comm.to_lossy(), held.pid),
    });
    named.unwrap_or_else(|| {
        let is_ours = probe.locks().is_ok_and(|locks| {
            locks
                .iter()
                .any(|lock| lock.ino == meta.ino() && lock.kind == "OFDLCK")
        });
        if is_ours {
            "another thread of this process, or a process that cannot be examined".to_owned()
        } else {
            unknown
        }
    })
}
