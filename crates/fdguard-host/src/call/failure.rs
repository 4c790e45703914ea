//! Why a call returned no response, or only part of it.

use std::fmt;
use std::time::Duration;

use fdguard_core::units::whole_milliseconds;

use super::abort::AbortReason;
use super::state::CallPhase;

/// One line for the user, and a code for programs: [`CallFailure::code`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// The request makes no sense.
    #[error("{0}")]
    Bad(String),
    /// The name has no address.
    #[error("cannot resolve {host}: {why}")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's message.
        why: String,
    },
    /// No address of the name took the connection.
    #[error("cannot connect to {to}: {why}")]
    Connect {
        /// The last address that was tried.
        to: String,
        /// Why not.
        why: String,
    },
    /// The peer's identity is wrong, or it does not support TLS.
    #[error("TLS handshake with {host} failed: {why}")]
    Tls {
        /// The name.
        host: String,
        /// Why not.
        why: String,
    },
    /// A limit of time was reached.
    #[error("{limit} of {} exceeded", whole_milliseconds(*after))]
    Timeout {
        /// Which one.
        limit: TimeLimit,
        /// The limit.
        after: Duration,
    },
    /// It was aborted.
    #[error("call aborted ({reason}) in phase {phase}")]
    Aborted {
        /// The reason.
        reason: AbortReason,
        /// The phase at that time.
        phase: CallPhase,
    },
    /// The peer closed the connection before the response was complete.
    #[error("peer closed the connection in phase {phase}: {why}")]
    ClosedEarly {
        /// The phase at that time.
        phase: CallPhase,
        /// The message of the layer that failed.
        why: String,
    },
    /// The response is not HTTP, or its head is too large.
    #[error("invalid HTTP response: {0}")]
    Garbled(String),
    /// The body is larger than the limit.
    #[error("response body exceeds {max} bytes")]
    TooLarge {
        /// The limit.
        max: usize,
    },
    /// The system refused.
    #[error("{0}")]
    Io(String),
    /// The caller was closed.
    #[error("the HTTP client is closed")]
    Closing,
    /// As many calls as there may be are running.
    #[error("too many calls: {0} are running, which is the limit")]
    Full(usize),
}

impl CallFailure {
    /// A stable code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bad(_) => "bad-request",
            Self::Resolve { .. } => "resolve-failed",
            Self::Connect { .. } => "connect-failed",
            Self::Tls { .. } => "tls-failed",
            Self::Timeout { limit, .. } => limit.word(),
            Self::Aborted { .. } => "aborted",
            Self::ClosedEarly { .. } => "closed-early",
            Self::Garbled(_) => "garbled",
            Self::TooLarge { .. } => "too-large",
            Self::Io(_) => "io",
            Self::Closing => "closing",
            Self::Full(_) => "full",
        }
    }

    /// Classifies an error of hyper by what the user can do about it.
    pub(super) fn of_http(error: &hyper::Error, phase: CallPhase) -> Self {
        let why = with_causes(error);
        if error.is_parse() {
            return Self::Garbled(why);
        }
        let ended = error.is_incomplete_message() || error.is_closed() || error.is_canceled();
        if ended || cause_is_an_end(error) {
            return Self::ClosedEarly { phase, why };
        }
        Self::Io(why)
    }
}

/// The time limits, each with its own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeLimit {
    /// Name, connection and TLS together.
    Connect,
    /// No byte was sent and none of the answer arrived.
    FirstByte,
    /// No further byte of the answer arrived.
    Idle,
    /// The whole call.
    Total,
}

impl TimeLimit {
    /// The name, which is also the error's code.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Connect => "connect-timeout",
            Self::FirstByte => "first-byte-timeout",
            Self::Idle => "idle-timeout",
            Self::Total => "total-timeout",
        }
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let line = next.to_string();
        if !text.contains(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        cause = next.source();
    }
    text
}

fn cause_is_an_end(error: &hyper::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        if let Some(io) = next.downcast_ref::<std::io::Error>() {
            return matches!(
                io.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
            );
        }
        cause = next.source();
    }
    false
}
