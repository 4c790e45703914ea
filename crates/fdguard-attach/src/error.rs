//! Why a call was not made.

use std::io;

use crate::Refusal;

/// The call was not made, and the process goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process cannot be entered.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No thread was at a place where the loader can run.
    #[error("no thread could be borrowed safely: {function} was in the way (tried {tries} times)")]
    NoSafeThread {
        /// What a thread was in when it was last looked at.
        function: String,
        /// How often threads were looked at.
        tries: u32,
    },
    /// All threads wait in system calls that cannot be interrupted without a difference.
    #[error("no thread could be borrowed: all wait in calls that cannot be interrupted unnoticed")]
    NoThread,
    /// The process has no `/proc`, or one of another pid namespace.
    #[error("the program cannot open /proc/self/fd, which it needs to load a library: {reason}")]
    NoProc {
        /// What the loader says.
        reason: String,
    },
    /// The loader refuses the library.
    #[error("the program cannot load the library: {reason}")]
    NotLoaded {
        /// What the loader says.
        reason: String,
    },
    /// The library has no such function.
    #[error("the library has no function {name}")]
    NoFunction {
        /// Its name.
        name: String,
    },
    /// The kernel refuses the process memory or a descriptor.
    #[error("the program cannot get {what}: {source}")]
    NoResource {
        /// What was asked for.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The function faulted. The thread was returned.
    #[error("the library's function was ended by signal {signal}; the program goes on")]
    Fault {
        /// The signal.
        signal: i32,
    },
    /// The function has not returned. The thread finishes it alone.
    #[error("the library's function has not returned within 10 s; its thread finishes alone")]
    Limit,
    /// The process ended.
    #[error("the process ended")]
    Ended,
    /// The process is another program now.
    #[error("the process executed another program meanwhile")]
    Executed,
    /// The kernel refuses something unexpected.
    #[error("cannot trace the process: {0}")]
    System(#[source] io::Error),
}

impl Error {
    /// What works instead; `None` if nothing is known.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Refused(refusal) => refusal.remedy(),
            Self::Executed => Some("try again: the new program can be traced as well"),
            Self::NoSafeThread { .. } | Self::NoThread => {
                Some("try again, or start it under fdguard trace -- COMMAND")
            }
            Self::NoProc { .. }
            | Self::NotLoaded { .. }
            | Self::NoResource { .. }
            | Self::Fault { .. }
            | Self::Limit => Some("start it under fdguard trace -- COMMAND"),
            Self::NoFunction { .. } | Self::Ended | Self::System(_) => None,
        }
    }
}
