//! The files in which the processes of a trace record: one for each process, in one directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fdguard_core::TraceKey;
use fdguard_proc::process;
use fdguard_wire::{NOBODY_ASKS, WAITING};
use rustix::fs::{Mode, OFlags};

use crate::Error;
use crate::observed_trace::program_of;
use crate::ring::Ring;
use crate::table::ProcessTable;
use crate::trace_dir::LIBRARY_NAME;

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

    /// Processes that wait until their heap was walked, and since when: by the age of the file that
    /// each has created for that.
    pub(crate) fn waiting(&self) -> Vec<(TraceKey, SystemTime)> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let waiting = entries.filter_map(|entry| {
            let key = key_before(&entry.file_name(), waiting_suffix())?;
            // It is gone if the process does not wait any longer.
            Some((key, entry.metadata().ok()?.modified().ok()?))
        });
        waiting.collect()
    }

    /// Lets such a process go on.
    pub(crate) fn release(&self, TraceKey { pid, began }: TraceKey) {
        let name = format!("{pid}-{began}{}", waiting_suffix());
        // The process removes it itself if it does not wait any longer.
        drop(std::fs::remove_file(self.dir.join(name)));
    }

    /// No process waits from now on.
    pub(crate) fn release_all(&self) {
        let name = NOBODY_ASKS.strip_suffix(b"\0").unwrap_or(NOBODY_ASKS);
        let name = name.strip_prefix(b"/").unwrap_or(name);
        // Without it they wait for a few seconds.
        drop(std::fs::write(self.dir.join(OsStr::from_bytes(name)), []));
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

/// Whether the process `pid` has replaced the program that wrote this table: then its file is
/// no longer mapped.
///
/// The loader never waits, except for the disk, so a process that sleeps runs its program. That is
/// asked before its maps are read and after it: the program before an exec may sleep, and one that
/// began to record after the maps were read.
pub(crate) fn is_outlived(key: TraceKey, pid: u32) -> bool {
    let is_absent = || {
        let was_asleep = process::is_asleep(pid);
        let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        match program_after(&maps, key.pid) {
            Successor::None => false,
            Successor::Loading => (was_asleep && process::is_asleep(pid)) || !can_load(pid),
            Successor::Other => true,
        }
    };
    // A process that ends during the read yields a part; the second read yields nothing.
    is_absent() && is_absent()
}

/// Whether a process without a table may still begin to record: on a busy machine its libraries
/// take a while to load.
pub(crate) fn is_starting(pid: u32) -> bool {
    let was_asleep = process::is_asleep(pid);
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    match program_after(&maps, pid) {
        Successor::None => !maps.is_empty(),
        Successor::Loading => !(was_asleep && process::is_asleep(pid)) && can_load(pid),
        Successor::Other => false,
    }
}

/// What a process runs instead of the program with a known table.
#[derive(Debug, PartialEq, Eq)]
enum Successor {
    /// It has ended, or records still or again.
    None,
    /// One without a C library so far, or with our library that did not begin to record.
    Loading,
    /// One without our library.
    Other,
}

/// By what is mapped. `pid` is the number of the process in the names of its tables, of which a
/// newer one counts too: it is in none of the tables read so far.
fn program_after(maps: &[u8], pid: u32) -> Successor {
    let is_mapped = |name: &[u8]| maps.windows(name.len()).any(|part| part == name);
    let mut names = maps.split(|byte| matches!(byte, b'\n' | b' ' | b'/'));
    let is_table = |name: &[u8]| key_of(OsStr::from_bytes(name)).is_some_and(|key| key.pid == pid);
    // An ended process has no maps, and if the maps cannot be read, the table is trusted.
    if maps.is_empty() || names.any(is_table) {
        return Successor::None;
    }
    let has_libc = is_mapped(b"/libc.so") || is_mapped(b"/libc-");
    // The loader maps preloaded libraries before the C library. In the middle of an exec not even
    // the loader is mapped.
    if is_mapped(LIBRARY_NAME.as_bytes()) || !has_libc {
        return Successor::Loading;
    }
    Successor::Other
}

/// Whether a process that has no C library so far can load ours.
fn can_load(pid: u32) -> bool {
    program_of(pid).is_none_or(|program| program.blind.is_none())
}

/// `PID-BEGAN.fdguard`.
fn key_of(name: &OsStr) -> Option<TraceKey> {
    key_before(name, SUFFIX)
}

/// How the name of the file of a process that waits ends.
fn waiting_suffix() -> &'static str {
    let name = WAITING.strip_suffix(b"\0").unwrap_or(WAITING);
    std::str::from_utf8(name).unwrap_or_default()
}

/// The process in the name of a file with this end.
fn key_before(name: &OsStr, suffix: &str) -> Option<TraceKey> {
    let (pid, began) = name.to_str()?.strip_suffix(suffix)?.split_once('-')?;
    Some(TraceKey {
        pid: pid.parse().ok()?,
        began: began.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::time::{Duration, SystemTime};

    use fdguard_core::TraceKey;

    use super::{RecordFiles, Successor, key_of, program_after};

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
    fn a_process_waits_since_its_file_was_created() {
        let dir = tempfile::tempdir().unwrap();
        let files = RecordFiles::new(dir.path());
        assert_eq!(files.waiting(), []);
        let then = SystemTime::now() - Duration::from_secs(5);
        let file = std::fs::File::create(dir.path().join("12-345.waiting")).unwrap();
        file.set_modified(then).unwrap();
        std::fs::write(dir.path().join("12-345.fdguard"), []).unwrap();
        assert_eq!(files.waiting(), [(KEY, then)]);
        files.release(KEY);
        assert_eq!(files.waiting(), []);
    }

    #[test]
    fn a_program_whose_libraries_are_being_loaded_may_still_record() {
        let after = |names: &[&str]| {
            let line = |name: &&str| format!("7f0000000000-7f0000001000 r--p 0 fd:00 7 {name}\n");
            let maps: String = names.iter().map(line).collect();
            program_after(maps.as_bytes(), 12)
        };
        let (loader, libc) = ("/lib64/ld-linux-x86-64.so.2", "/lib/libc.so.6");
        let ours = "/dev/shm/fdguard-trace-a/libfdguard_preload.so";
        let table = "/dev/shm/fdguard-trace-a/12-345.fdguard";
        let newer = "/dev/shm/fdguard-trace-a/12-678.fdguard";
        assert_eq!(after(&[]), Successor::None);
        assert_eq!(after(&["/bin/a", libc, ours, table]), Successor::None);
        assert_eq!(after(&["/bin/b", loader]), Successor::Loading);
        assert_eq!(after(&["/bin/b", loader, ours]), Successor::Loading);
        assert_eq!(after(&["/bin/b", loader, ours, libc]), Successor::Loading);
        assert_eq!(after(&["/bin/b", loader, libc]), Successor::Other);
        assert_eq!(after(&["/bin/b", "/lib/libc-2.31.so"]), Successor::Other);
        assert_eq!(after(&["/bin/b"]), Successor::Loading);
        assert_eq!(after(&["[stack]"]), Successor::Loading);
        assert_eq!(after(&[loader, ours, libc, newer]), Successor::None);
        let parents = "/dev/shm/fdguard-trace-a/1-12.fdguard";
        assert_eq!(after(&[loader, libc, parents]), Successor::Other);
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
