//! Errors of inspecting, healing and locking files.

use std::io;
use std::path::{Path, PathBuf};

/// Why a file could not be examined. None of these is damage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system error.
    #[error("{what} {}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was attempted.
        what: &'static str,
        /// The system error.
        source: io::Error,
    },
    /// It is not a regular file.
    #[error("{} is {what}", path.display())]
    NotAFile {
        /// Which file.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// The processes could not be examined.
    #[error(transparent)]
    Probe(#[from] fdguard_probe::Error),
    /// Another process holds the lock and did not release it in time.
    #[error("{} is locked by {holder}", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The holder.
        holder: String,
    },
}

impl Error {
    /// A system error about a file.
    pub(crate) fn io(path: &Path, what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io {
            path: path.to_owned(),
            what,
            source: source.into(),
        }
    }
}
