//! Why a registry could not be opened, read or changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fdguard_core::units::exact_seconds;
use rusqlite::ErrorCode;

use super::state::{Owner, RowState, TransitionRefusal};
use crate::{check, vault};

/// Errors of a registry. None of them changed anything, unless stated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be examined.
    #[error(transparent)]
    File(#[from] crate::Error),
    /// An error of the thread that holds it.
    #[error(transparent)]
    Vault(#[from] vault::Error),
    /// The file is damaged. It is never recreated.
    #[error("registry {} is damaged and was not changed: {what}; run `fdguard inspect {}`", path.display(), path.display())]
    Damaged {
        /// The registry.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// It belongs to another program.
    #[error("{} is not an fdguard registry: {what}", path.display())]
    NotARegistry {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// A later fdguard wrote it.
    #[error("registry {} has version {found}, but this fdguard supports versions up to {known}: use a newer fdguard", path.display())]
    Newer {
        /// The registry.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version this fdguard supports.
        known: i64,
    },
    /// The open file is no longer the one at the path.
    #[error("cannot write to the registry: {} was {what} while it was open", path.display())]
    Replaced {
        /// The file: the registry or one of its side files.
        path: PathBuf,
        /// `deleted` or `replaced`.
        what: &'static str,
    },
    /// Other processes kept writing.
    #[error("registry {} was locked for {}: {holder}", path.display(), exact_seconds(Duration::from_secs(*seconds)))]
    Busy {
        /// The registry.
        path: PathBuf,
        /// How long the caller waited.
        seconds: u64,
        /// The holder of the lock.
        holder: String,
    },
    /// An entry with this name exists.
    #[error("entry {id} already exists")]
    Exists {
        /// The name.
        id: String,
    },
    /// There is no entry with this name.
    #[error("no such entry: {id}")]
    Missing {
        /// The name.
        id: String,
    },
    /// It was changed since it was read.
    #[error("entry {id} was changed meanwhile: expected version {given}, found {now}")]
    Stale {
        /// Which.
        id: String,
        /// The version that the caller saw.
        given: u64,
        /// The current version.
        now: u64,
    },
    /// Another process is closing it.
    #[error("entry {id} is being closed by {} (pid {})", owner.name, owner.process.pid)]
    AlreadyClosing {
        /// Which.
        id: String,
        /// The closer.
        owner: Owner,
    },
    /// It has ended and cannot change.
    #[error("cannot change entry {id}: it has ended ({})", state.as_str())]
    Ended {
        /// Which.
        id: String,
        /// How.
        state: RowState,
    },
    /// It is running, but the caller wanted to finish it.
    #[error("cannot finish entry {id}: it is not closing")]
    NotClosing {
        /// Which.
        id: String,
    },
    /// An SQLite error: disk or permissions, not damage.
    #[error("cannot use the registry {}: {source}", path.display())]
    Sqlite {
        /// The registry.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
}

impl Error {
    /// Classifies an SQLite error.
    pub(super) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        if check::is_damage(&source) {
            return Self::Damaged {
                path,
                what: source.to_string(),
            };
        }
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy {
                path,
                seconds: super::PATIENCE.as_secs(),
                holder: String::new(),
            },
            _ => Self::Sqlite { path, source },
        }
    }

    /// Why the rules refused.
    pub(super) fn refused(
        id: &str,
        refusal: TransitionRefusal,
        given: Option<u64>,
        now: u64,
    ) -> Self {
        let id = id.to_owned();
        match refusal {
            TransitionRefusal::Ended(state) => Self::Ended { id, state },
            TransitionRefusal::Stale => Self::Stale {
                id,
                given: given.unwrap_or_default(),
                now,
            },
            TransitionRefusal::AlreadyClosing(owner) => Self::AlreadyClosing { id, owner },
            TransitionRefusal::NotClosing => Self::NotClosing { id },
        }
    }
}
