//! Ends one resource within a time limit. A failure or timeout is retried once, and the first error
//! is reported.

mod file;
mod process;
mod program;
mod session;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_core::units::whole_milliseconds;

pub(super) use file::{delete_directory, end_file};
pub(super) use process::end_process;
pub(super) use program::end_program;
pub(super) use session::end_session;

use super::archive_place::ArchivePlace;
use super::clean_up::{CleanUpAction, CloseReason, Kind, ResourceDetails, ResourceOutcome};
use super::context::ScopeContext;
use super::root::ScopeRoot;

/// Time limits of a close.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CloseLimits {
    /// From the first signal to the first KILL.
    pub grace: Duration,
    /// For each try of each resource; there are two.
    pub limit: Duration,
    /// How long each attempt waits for the last writer of a file.
    pub archive_wait: Duration,
    /// Also end processes that are found only by their environment; otherwise they are only
    /// reported.
    pub end_leftovers: bool,
}

impl Default for CloseLimits {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(2),
            limit: Duration::from_secs(5),
            archive_wait: Duration::from_secs(2),
            end_leftovers: true,
        }
    }
}

/// Context shared by all ends of one cleanup.
#[derive(Clone, Debug)]
pub(super) struct Around {
    pub(super) how: CloseLimits,
    pub(super) why: CloseReason,
    pub(super) means: Arc<ScopeContext>,
    pub(super) root: ScopeRoot,
    pub(super) archive: ArchivePlace,
}

/// Result of an end, before it has a number.
#[derive(Debug)]
pub(super) struct ScopeEnd {
    pub(super) did: CleanUpAction,
    pub(super) errors: Vec<String>,
    pub(super) ok: bool,
    pub(super) details: ResourceDetails,
}

impl ScopeEnd {
    pub(super) fn fine(did: CleanUpAction) -> Self {
        Self {
            did,
            errors: Vec::new(),
            ok: true,
            details: ResourceDetails::default(),
        }
    }

    pub(super) fn failed(error: impl Into<String>) -> Self {
        Self {
            did: CleanUpAction::Kept,
            errors: vec![error.into()],
            ok: false,
            details: ResourceDetails::default(),
        }
    }

    pub(super) fn with(mut self, details: ResourceDetails) -> Self {
        self.details = details;
        self
    }

    /// Puts the errors of a first try in front.
    pub(super) fn after(mut self, first: Vec<String>) -> Self {
        self.details.tried_twice = true;
        self.errors.splice(0..0, first);
        self
    }

    pub(super) fn outcome(
        self,
        number: u64,
        kind: Kind,
        name: String,
        since: Instant,
    ) -> ResourceOutcome {
        let mut errors = self.errors.into_iter();
        let error = errors.next();
        let details = ResourceDetails {
            more_errors: errors.collect(),
            ..self.details
        };
        ResourceOutcome {
            number,
            kind,
            name,
            ok: self.ok,
            did: self.did,
            error,
            ms: since.elapsed().as_secs_f64() * 1000.0,
            details,
        }
    }
}

pub(super) fn too_long(limit: Duration) -> String {
    format!("took longer than {}", whole_milliseconds(limit))
}
