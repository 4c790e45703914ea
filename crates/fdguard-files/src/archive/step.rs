//! The steps of an archive, and the observer that is notified between them.

use std::fmt;
use std::path::Path;

use serde::Serialize;

/// A completed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArchiveStep {
    /// No other archive works on the file.
    Claimed,
    /// Renamed for the duration of the archive: a program that opens its own name creates a new
    /// file.
    Closing,
    /// No process can write it any more.
    Proven,
    /// It was read to its end.
    Read,
    /// The empty copy exists.
    Begun,
    /// The copy is complete, compared and on disk.
    Copied,
    /// Its bytes are on disk.
    Synced,
    /// It has its name in the archive.
    Moved,
    /// That name is on disk.
    Recorded,
    /// The original of a copy is gone.
    Removed,
    /// The source directory was synced.
    Settled,
}

impl ArchiveStep {
    /// All of them, in order.
    pub const ALL: [Self; 11] = [
        Self::Claimed,
        Self::Closing,
        Self::Proven,
        Self::Read,
        Self::Begun,
        Self::Copied,
        Self::Synced,
        Self::Moved,
        Self::Recorded,
        Self::Removed,
        Self::Settled,
    ];

    /// Its name in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Closing => "closing",
            Self::Proven => "proven",
            Self::Read => "read",
            Self::Begun => "begun",
            Self::Copied => "copied",
            Self::Synced => "synced",
            Self::Moved => "moved",
            Self::Recorded => "recorded",
            Self::Removed => "removed",
            Self::Settled => "settled",
        }
    }
}

/// Notified of each step of each file. For tests, which kill the process at every step.
pub trait ArchiveObserver: fmt::Debug + Send + Sync {
    /// A step for this file is complete.
    fn passed(&self, step: ArchiveStep, source: &Path);
}
