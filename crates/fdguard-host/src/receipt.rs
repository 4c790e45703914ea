//! The receipt of a closed session.

use schemars::JsonSchema;
use serde::Serialize;

/// Receipt for a closed session. What is left is counted, not assumed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Receipt {
    /// Session id.
    pub session: String,
    /// Why the session ended.
    pub reason: SessionEndReason,
    /// Nothing is left: the keeper reaped the last process, and the host released all descriptors.
    pub clean: bool,
    /// Processes still running; `null` if the keeper was lost and the number is unknown.
    pub survivors: Option<u32>,
    /// Zombies left; `null` if unknown.
    pub zombies: Option<u32>,
    /// Processes reaped in addition to the program itself.
    pub reaped: Option<u32>,
    /// Processes that ignored the request to terminate and were killed.
    pub killed: Option<u32>,
    /// Descriptors the host held for the session while it was open.
    pub descriptors_held: u32,
    /// Descriptors the host still holds for the session.
    pub descriptors_left: u32,
    /// How the program ended: `exit 0`, `signal 9`; `null` if unknown.
    pub exit: Option<String>,
    /// Bytes of output that were not delivered to any client.
    pub dropped_bytes: u64,
    /// Duration of each step in milliseconds, in order.
    pub steps: Vec<StepTime>,
    /// Total duration of all steps in milliseconds.
    pub total_ms: f64,
    /// The limit it exceeded, if it was closed for that.
    pub overuse: Option<Overuse>,
    /// Errors during the close.
    pub errors: Vec<String>,
}

impl Receipt {
    /// The receipt of an end that was not observed: everything is unknown, with the reason.
    #[must_use]
    pub fn unknown(session: &str, reason: SessionEndReason, error: impl Into<String>) -> Self {
        Self {
            session: session.to_owned(),
            reason,
            clean: false,
            survivors: None,
            zombies: None,
            reaped: None,
            killed: None,
            descriptors_held: 0,
            descriptors_left: 0,
            exit: None,
            dropped_bytes: 0,
            steps: Vec::new(),
            total_ms: 0.0,
            overuse: None,
            errors: vec![error.into()],
        }
    }
}

/// A limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Overuse {
    /// Which limit.
    pub limit: SessionLimit,
    /// Allowed amount.
    pub allowed: u64,
    /// Measured amount.
    pub used: u64,
}

/// A limit of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SessionLimit {
    /// Bytes of memory, all processes together.
    Memory,
    /// Number of processes.
    Processes,
}

/// One step of closing a session.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepTime {
    /// `ask`, `kill`, `drain`, `release`, …
    pub step: String,
    /// Duration in milliseconds.
    pub ms: f64,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SessionEndReason {
    /// A client requested it.
    Asked,
    /// Reset: the session continues with a new program.
    Reset,
    /// The program exited.
    ProgramEnded,
    /// The session was idle for too long.
    Idle,
    /// The client's lease expired or its connection closed.
    ClientGone,
    /// Evicted to make room for another session.
    Evicted,
    /// It exceeded a resource limit.
    Limit,
    /// The host is shutting down.
    Shutdown,
    /// It failed to start.
    StartFailed,
}
