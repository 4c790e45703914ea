//! What a close proves.

use schemars::JsonSchema;
use serde::Serialize;

/// The end of a session: what was left is counted, not assumed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Receipt {
    /// Which session.
    pub session: String,
    /// Why it ended.
    pub reason: SessionEndReason,
    /// Nothing of it is left: the keeper reaped its last process, and our descriptors are as before it began.
    pub clean: bool,
    /// Processes that live on; `null` when the keeper was lost and nobody can say.
    pub survivors: Option<u32>,
    /// Zombies that are left; `null` when unknown.
    pub zombies: Option<u32>,
    /// Processes that were reaped besides the program.
    pub reaped: Option<u32>,
    /// Processes that did not end when they were asked to and were killed.
    pub killed: Option<u32>,
    /// Descriptors that the host held for it while it lived.
    pub descriptors_held: u32,
    /// Descriptors that the host still holds for it.
    pub descriptors_left: u32,
    /// How the program ended: `exit 0`, `signal 9`; `null` when unknown.
    pub exit: Option<String>,
    /// Bytes of output that nobody got.
    pub dropped_bytes: u64,
    /// Milliseconds of each step, in order.
    pub steps: Vec<StepTime>,
    /// Of all steps together.
    pub total_ms: f64,
    /// What it used too much of, when it was ended for that.
    pub overuse: Option<Overuse>,
    /// What went wrong on the way.
    pub errors: Vec<String>,
}

impl Receipt {
    /// Of an end that nobody saw: everything is unknown, and why is told.
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

/// A limit that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Overuse {
    /// Which limit.
    pub limit: SessionLimit,
    /// How much was allowed.
    pub allowed: u64,
    /// How much was seen.
    pub used: u64,
}

/// A limit of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SessionLimit {
    /// Bytes of memory of all its processes.
    Memory,
    /// Processes at a time.
    Processes,
}

/// One step of a close.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepTime {
    /// `ask`, `kill`, `drain`, `release`, …
    pub step: String,
    /// How long it took.
    pub ms: f64,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SessionEndReason {
    /// Its client asked.
    Asked,
    /// A reset: the session lives on with a new program.
    Reset,
    /// Its program ended by itself.
    ProgramEnded,
    /// Nobody used it for too long.
    Idle,
    /// Its client's lease ran out, or its connection ended.
    ClientGone,
    /// It gave way to another at the cap.
    Evicted,
    /// It used more than it may.
    Limit,
    /// The host shuts down.
    Shutdown,
    /// It could not be started.
    StartFailed,
}
