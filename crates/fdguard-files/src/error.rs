//! Errors of inspecting, healing and locking files.

use std::io;
use std::path::{Path, PathBuf};

/// Why nothing can be said. None of these is damage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("{what} {}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It is no regular file.
    #[error("{} is {what}", path.display())]
    NotAFile {
        /// Which file.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// The processes could not be looked at.
    #[error(transparent)]
    Probe(#[from] fdguard_probe::Error),
    /// Another one holds the lock, and did not let go in time.
    #[error("{} is locked by {holder}", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Who holds it.
        holder: String,
    },
}

impl Error {
    /// What the system said about a file.
    pub(crate) fn io(path: &Path, what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io {
            path: path.to_owned(),
            what,
            source: source.into(),
        }
    }
}
