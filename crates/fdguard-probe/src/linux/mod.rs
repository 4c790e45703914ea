//! The Linux probe.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fdguard_core::{Gap, Pid};
use fdguard_proc::mountinfo;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::Error;

mod borrow;
mod cache;
mod ceilings;
mod classify;
pub mod fdinfo_detail;
mod files;
mod foreign_netns;
mod gaps;
pub mod holders;
mod kcmp;
mod kernel;
mod mounts;
mod pass;
mod process;
pub mod program;
pub mod radar;
mod reader;
mod rlimit;
mod search;
mod select;
pub mod snapshot;
mod socket;
mod socket_entry;
pub mod socket_holders;
mod socket_names;
mod socket_query;
mod table;
pub mod watcher;
pub mod workload;

#[cfg(feature = "fuzzing")]
pub use kernel::fuzz_walk;

/// Examines processes through one proc file system.
#[derive(Debug)]
pub struct Probe {
    /// The proc file system itself.
    proc: OwnedFd,
    /// Where it is, for the few calls that only take paths.
    path: PathBuf,
    /// Whether this is the kernel's own: only then are sizes meaningful and links resolvable.
    real: bool,
    /// Whether the size of a descriptor directory is the number of descriptors (Linux 6.2 and
    /// later).
    sizes: bool,
    /// fdguard's own table, to query descriptors that it holds for a moment; absent on a simulated
    /// tree.
    own: Option<Arc<OwnedFd>>,
    /// Whether processes of other users are hidden: then absence proves nothing.
    hides: bool,
    /// What is known about mounts, shared by all reads.
    mounts: Arc<mounts::Mounts>,
    /// Seconds from the epoch to boot, read on demand: its file is long.
    boot: OnceLock<Option<i64>>,
    /// Names of containers and pods.
    names: workload::NameReader,
}

impl Probe {
    /// The probe on `/proc`.
    pub fn new() -> Result<Self, Error> {
        Self::at(Path::new("/proc"))
    }

    /// The probe on another root: a simulated tree in a test, or the `/proc` of a container.
    pub fn at(root: &Path) -> Result<Self, Error> {
        let proc = files::open_dir_at(rustix::fs::CWD, root).map_err(|error| Error::NoProc {
            path: root.to_owned(),
            source: error.into(),
        })?;
        let real = files::is_procfs(&proc);
        let own = real
            .then(|| files::open_base_at(&proc, c"self/fd").ok())
            .flatten()
            .map(Arc::new);
        let mountinfo = real
            .then(|| files::read(&proc, c"self/mountinfo").ok())
            .flatten();
        let mountinfo = mountinfo.unwrap_or_default();
        let hides = !rustix::process::geteuid().is_root()
            && mountinfo::hides_processes(&mountinfo, root.as_os_str().as_bytes());
        let mounts = mounts::Mounts::parse(&mountinfo);
        let sizes = own.as_ref().is_some_and(|own| files::size_of(own) > 0);
        Ok(Self {
            proc,
            path: root.to_owned(),
            real,
            sizes,
            own,
            hides,
            mounts: Arc::new(mounts),
            boot: OnceLock::new(),
            // A simulated tree brings the state of its runtimes along.
            names: workload::NameReader::new(match real {
                true => PathBuf::from("/"),
                false => root.to_owned(),
            }),
        })
    }

    /// The gap for hidden processes, if there may be any.
    #[must_use]
    pub fn hidden(&self) -> Option<Gap> {
        self.hides.then(gaps::hidden_gap)
    }

    /// `stat` of the table's directory, from outside: its inode belongs to the process, its size is
    /// the count.
    fn table_stat(&self, pid: Pid) -> Result<rustix::fs::Stat, Errno> {
        rustix::fs::statat(&self.proc, format!("{pid}/fd"), AtFlags::empty())
    }

    /// The table of a process; for fdguard itself, without the probe's descriptors.
    fn table_dir(&self, pid: Pid, base: &OwnedFd) -> Result<table::TableDir, Errno> {
        let mut mine = Vec::new();
        if self.real && pid == std::process::id() {
            mine = vec![files::number_of(&self.proc), files::number_of(base)];
            mine.extend(self.own.as_deref().map(files::number_of));
        }
        let (own, mounts) = (self.own.clone(), self.mounts.clone());
        table::TableDir::open(pid, base.as_fd(), own, mounts, &mine)
    }
}
