//! What can go wrong.

use std::fmt::Display;
use std::io;

/// Why there is no diagnosis.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A process could not be read.
    #[error(transparent)]
    Probe(#[from] fdguard_probe::Error),
    /// A symptom of the playbook has a wrong pattern.
    #[error(transparent)]
    Playbook(#[from] fdguard_core::located::ConfigMistake),
    /// A file could not be read or written.
    #[error("{name}")]
    File {
        /// Its name.
        name: String,
        /// Why not.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{message}")]
    Input {
        /// What is wrong with it.
        message: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// Signals could not be received.
    #[error("cannot receive signals")]
    Signals(#[source] io::Error),
}

impl Error {
    pub(crate) fn file(name: impl Display, source: impl Into<io::Error>) -> Self {
        Self::File {
            name: name.to_string(),
            source: source.into(),
        }
    }
}
