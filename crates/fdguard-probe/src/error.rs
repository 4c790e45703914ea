//! Why a process could not be examined.

use std::io;
use std::path::PathBuf;

use fdguard_core::Pid;

/// Why reading a process failed. A partly readable process has a `Gap` in the value instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such process.
    #[error("no process {0}")]
    NoSuchProcess(Pid),
    /// It exited while it was being read.
    #[error("process {0} exited while it was being read")]
    Vanished(Pid),
    /// It has already exited; only its entry is left.
    #[error(
        "process {pid} is a zombie: it exited and has nothing open; its parent {ppid} has not waited for it"
    )]
    Zombie {
        /// The process.
        pid: Pid,
        /// The parent that should have waited.
        ppid: Pid,
    },
    /// A kernel thread.
    #[error("process {0} is a kernel thread: it has no descriptors")]
    KernelThread(Pid),
    /// The proc file system is not where it should be.
    #[error("cannot read {} as a proc file system", path.display())]
    NoProc {
        /// The expected path.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// The helper program could not be run or did not respond.
    #[error("{program}: {problem}")]
    Helper {
        /// Which program.
        program: &'static str,
        /// What went wrong.
        problem: String,
    },
    /// Any other system error.
    #[error("{what}")]
    Io {
        /// What was attempted.
        what: String,
        /// The system error.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io {
            what: what.into(),
            source: source.into(),
        }
    }
}
