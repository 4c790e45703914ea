//! The files in which the processes of a trace record: one for each process, in one directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use fdguard_core::TraceKey;
use rustix::fs::{Mode, OFlags};

use crate::Error;
use crate::ring::Ring;
use crate::table::ProcessTable;

/// How the name of a process's file ends.
const SUFFIX: &str = ".fdguard";

/// A directory with such files.
#[derive(Clone, Debug)]
pub(crate) struct RecordFiles {
    dir: PathBuf,
}

impl RecordFiles {
    /// The files in this directory.
    pub(crate) fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Every process with a file, sorted.
    pub(crate) fn keys(&self) -> Result<Vec<TraceKey>, Error> {
        let failed = |source| Error::Read {
            path: self.dir.clone(),
            source,
        };
        let mut keys = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let Some(key) = key_of(&entry.file_name())
                && entry.file_type().is_ok_and(|kind| kind.is_file())
            {
                keys.push(key);
            }
        }
        keys.sort_unstable();
        Ok(keys)
    }

    /// The events of a process.
    pub(crate) fn ring(&self, key: TraceKey) -> io::Result<Ring> {
        Ok(Ring::new(open(&self.file(key))?))
    }

    /// The table of a process; `None` while it is incomplete.
    pub(crate) fn table(&self, key: TraceKey) -> io::Result<Option<ProcessTable>> {
        let path = self.file(key);
        ProcessTable::read(&open(&path)?, &path)
    }

    /// Whether the process `pid` has replaced the program that wrote the file: then the file is no
    /// longer mapped.
    pub(crate) fn is_outlived(&self, key: TraceKey, pid: u32) -> bool {
        let file = self.file(key);
        let name = file.file_name().unwrap_or_default().as_bytes();
        let is_absent = || {
            let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
            // An ended process has no maps, and if the maps cannot be read, the table is trusted.
            !maps.is_empty() && !maps.windows(name.len()).any(|part| part == name)
        };
        // A process that ends during the read yields a part; the second read yields nothing.
        is_absent() && is_absent()
    }

    /// Removes the file of a process, which takes memory.
    pub(crate) fn remove(&self, key: TraceKey) {
        let file = self.file(key);
        // The directory is removed at the end.
        drop(std::fs::remove_file(&file));
        drop(std::fs::remove_file(file.with_extension("left")));
    }

    fn file(&self, TraceKey { pid, began }: TraceKey) -> PathBuf {
        self.dir.join(format!("{pid}-{began}{SUFFIX}"))
    }
}

/// The directory may belong to another user: what is in it must neither block nor lead elsewhere.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// `PID-BEGAN.fdguard`.
fn key_of(name: &OsStr) -> Option<TraceKey> {
    let (pid, began) = name.to_str()?.strip_suffix(SUFFIX)?.split_once('-')?;
    Some(TraceKey {
        pid: pid.parse().ok()?,
        began: began.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use fdguard_core::TraceKey;

    use super::{RecordFiles, key_of};

    const KEY: TraceKey = TraceKey {
        pid: 12,
        began: 345,
    };

    #[test]
    fn only_the_files_of_processes_have_a_key() {
        assert_eq!(key_of(OsStr::new("12-345.fdguard")), Some(KEY));
        for other in [
            "12-345.left",
            "libfdguard_preload.so",
            "12.fdguard",
            "a-1.fdguard",
        ] {
            assert_eq!(key_of(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_link_in_another_users_directory_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        let link = dir.path().join("12-345.fdguard");
        std::os::unix::fs::symlink(elsewhere.path(), link).unwrap();
        let files = RecordFiles::new(dir.path());
        assert_eq!(files.keys().unwrap(), []);
        assert!(files.ring(KEY).is_err() && files.table(KEY).is_err());
    }
}
