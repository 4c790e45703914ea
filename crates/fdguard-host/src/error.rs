//! Errors of the host.

use std::time::Duration;

use fdguard_core::units::whole_milliseconds;

/// An error in one line. Each has a stable code: [`Error::code`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such session, scope, client or call.
    #[error("no such {what}: {id}")]
    Unknown {
        /// `session`, `scope`, `client` or `call`.
        what: &'static str,
        /// The requested id.
        id: String,
    },
    /// A command runs in it already.
    #[error("session {id} is busy: a command has been running for {}", whole_milliseconds(Duration::from_millis(*for_ms)))]
    Busy {
        /// Which session.
        id: String,
        /// Since when.
        for_ms: u64,
    },
    /// There are as many as there may be.
    #[error("too many {what}: {count} are open, which is the limit")]
    Full {
        /// `sessions`, `calls`.
        what: &'static str,
        /// The number.
        count: usize,
    },
    /// The host's own descriptors are nearly used up.
    #[error("the host uses {used} of {limit} descriptors: it opens nothing new above 90 %")]
    NoRoom {
        /// How many it holds.
        used: u64,
        /// Its soft limit.
        limit: u64,
    },
    /// The host is closing.
    #[error("the host is shutting down")]
    Closing,
    /// The session has ended.
    #[error("session {id} has ended: {why}")]
    Ended {
        /// Which.
        id: String,
        /// The reason.
        why: String,
    },
    /// Its program could not be started; nothing is left of it.
    #[error("cannot start the program: {0}")]
    Start(#[from] fdguard_process::tree::StartError),
    /// Its program started and did not become ready in time; nothing is left of it.
    #[error("the program was not ready within {}; its output: {said:?}", whole_milliseconds(*after))]
    NotReady {
        /// The limit.
        after: Duration,
        /// Its last output.
        said: String,
    },
    /// The request is invalid.
    #[error("{0}")]
    Bad(String),
    /// The system refused.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// A file could not be handled.
    #[error(transparent)]
    Files(#[from] fdguard_files::Error),
    /// The registry could not be opened or changed.
    #[error(transparent)]
    Registry(#[from] fdguard_files::registry::Error),
    /// A call gave no answer.
    #[error(transparent)]
    Call(#[from] crate::call::CallFailure),
}

impl Error {
    /// A stable code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "unknown",
            Self::Busy { .. } => "busy",
            Self::Full { .. } => "full",
            Self::NoRoom { .. } => "no-room",
            Self::Closing => "closing",
            Self::Ended { .. } => "ended",
            Self::Start(_) => "start-failed",
            Self::NotReady { .. } => "not-ready",
            Self::Bad(_) => "bad-request",
            Self::Io { .. } => "io",
            Self::Files(_) => "files",
            Self::Registry(_) => "registry",
            Self::Call(failure) => failure.code(),
        }
    }

    /// The system's refusal.
    pub fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    pub(crate) fn random(source: std::io::Error) -> Self {
        let what = "cannot read random bytes";
        Self::Io { what, source }
    }
}
