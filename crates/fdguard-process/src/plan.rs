//! How a program is to be started.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// Everything that a start needs, prepared before the fork.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program and its words; the program is looked for as `execvp` does.
    pub command: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it starts; where we are when absent.
    pub folder: Option<PathBuf>,
    /// What it gets as 0, 1 and 2; ours when absent.
    pub stdio: [Option<Arc<OwnedFd>>; 3],
    /// What it gets from number 3 on, in this order; everything else is closed.
    pub handed: Vec<Handed>,
    /// The soft limit of descriptors that it starts with.
    pub soft_limit: Option<u64>,
    /// Whose members it shares signals of the terminal with.
    pub group: Group,
    /// Try a delegated cgroup.
    pub cgroup: bool,
}

/// A descriptor that the program is given.
#[derive(Clone, Debug)]
pub struct Handed {
    /// Ours.
    pub fd: Arc<OwnedFd>,
    /// Its name in `LISTEN_FDNAMES`; one that is absent is not counted in `LISTEN_FDS` and stands behind those that are.
    pub name: Option<String>,
}

/// The new program's place among sessions and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// A session of its own: it has no terminal.
    Session,
    /// A group of its own in our session.
    Own,
    /// Ours.
    Same,
}
