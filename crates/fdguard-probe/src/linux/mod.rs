//! The Linux probe.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::Error;

mod ceilings;
mod classify;
mod epoll;
mod files;
mod peers;
mod process;
pub mod radar;
pub mod snapshot;
mod socket;
mod sqlite;
mod table;
pub mod watcher;

/// Looks at processes through one proc file system.
#[derive(Debug)]
pub struct Probe {
    /// The proc file system itself.
    proc: OwnedFd,
    /// Where it is, for the few calls that only take paths.
    path: PathBuf,
    /// Whether this is the kernel's own: only then do sizes count and links resolve.
    real: bool,
    /// Seconds from the epoch to boot.
    boot: Option<i64>,
}

impl Probe {
    /// The probe on `/proc`.
    pub fn new() -> Result<Self, Error> {
        Self::at(Path::new("/proc"))
    }

    /// The probe on another root: a made-up tree in a test, or the `/proc` of a container.
    pub fn at(root: &Path) -> Result<Self, Error> {
        let proc = files::open_dir_at(rustix::fs::CWD, root).map_err(|error| Error::NoProc {
            path: root.to_owned(),
            source: error.into(),
        })?;
        let real = files::is_procfs(&proc);
        let boot = files::boot_time(&proc);
        Ok(Self {
            proc,
            path: root.to_owned(),
            real,
            boot,
        })
    }
}
