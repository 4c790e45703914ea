//! Errors, grouped by what the caller can do about them.

use std::io;
use std::path::PathBuf;

/// A failure to trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program does not exist.
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
        /// The reason.
        source: io::Error,
    },
    /// The directory for the trace could not be created.
    #[error("cannot create a private directory for the trace")]
    Dir {
        /// The reason.
        source: io::Error,
    },
    /// A file of the trace cannot be read.
    #[error("{path}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The kernel does not trace.
    #[error(transparent)]
    Kernel(#[from] fdguard_kernel::LoadRefusal),
    /// There is no such process.
    #[error("no process {pid}")]
    NoProcess {
        /// The process.
        pid: u32,
    },
    /// The process belongs to another user.
    #[error("process {pid}: permission denied")]
    Denied {
        /// The process.
        pid: u32,
    },
    /// The process was not launched under the tracer.
    #[error("process {pid} is not traced")]
    Untraced {
        /// The process.
        pid: u32,
        /// Why launching it under the tracer would not help either.
        blind: Option<crate::BlindReason>,
    },
}
