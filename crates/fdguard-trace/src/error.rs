//! Errors, divided by what the caller can do about them.

use std::io;
use std::path::PathBuf;

/// A failure to trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program is not there.
    #[error("{program}: not found")]
    NotFound {
        /// As it was named.
        program: String,
    },
    /// The program cannot be run.
    #[error("{program} cannot be run")]
    NotRunnable {
        /// As it was named.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// No folder for what the program writes.
    #[error("cannot create a private directory for the trace")]
    Dir {
        /// Why.
        source: io::Error,
    },
    /// A file of the trace cannot be read.
    #[error("{path}", path = path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no such process.
    #[error("no process {pid}")]
    NoProcess {
        /// Which.
        pid: u32,
    },
    /// The process belongs to another user.
    #[error("process {pid}: permission denied")]
    Denied {
        /// Which.
        pid: u32,
    },
    /// The process was not launched under the tracer.
    #[error("process {pid} is not traced")]
    Untraced {
        /// Which.
        pid: u32,
        /// Why launching it so would not help either.
        blind: Option<crate::BlindReason>,
    },
}
