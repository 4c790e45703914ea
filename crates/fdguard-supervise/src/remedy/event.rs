//! The input and output of a remedy.

use std::time::Duration;

use fdguard_proc::ProcKey;

use super::RepeatPolicy;
use crate::budget::{Excess, Measure};

/// An exceeded budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Breach {
    /// Which.
    pub what: Measure,
    /// By how much.
    pub passed: Excess,
    /// Time until the limit, if known.
    pub left: Option<Duration>,
}

impl Breach {
    /// Whether nothing is worth waiting for.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.passed.is_urgent(&self.what)
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum RemedyEvent {
    /// The program runs, started by the remedy or by the restart policy.
    Started(ProcKey),
    /// It could not be started.
    StartFailed(String),
    /// A budget is breached.
    Breached(Breach),
    /// The breach continued and is well beyond its level now: nothing is worth waiting for.
    Urgent,
    /// The measure fell back by itself.
    Cleared(Measure),
    /// The evidence is written to this path, or could not be.
    Evidence(Result<String, String>),
    /// The drain is over.
    Drained(DrainResult),
    /// Nothing is left of the tree.
    Ended,
    /// The readiness check was answered by this process.
    Answered(ProcKey),
    /// Nothing, but time passed.
    Time,
}

/// How a drain ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainResult {
    /// No connection is left.
    ConnectionsGone,
    /// The hook reported that the drain is done.
    HookDone,
    /// The hook failed: nothing is being drained.
    HookFailed(String),
    /// The program exited by itself.
    Ended,
    /// The time was up.
    TimeUp,
    /// None was requested.
    None,
}

/// An action to perform.
#[derive(Clone, Debug, PartialEq)]
pub enum RemedyAction {
    /// Write evidence about this process, within this time.
    WriteEvidence(Option<u32>, Duration),
    /// Stop writing it.
    StopEvidence,
    /// Begin to drain.
    BeginDrain(Duration),
    /// Stop the drain.
    StopDrain,
    /// Stop the tree.
    StopTree,
    /// Start the program again.
    StartTree,
    /// Log this.
    Tell(RemedyNotice),
}

/// What to log.
#[derive(Clone, Debug, PartialEq)]
pub enum RemedyNotice {
    /// A remedy begins.
    Begun(Breach),
    /// It has to wait: another service is being restarted.
    Waits(Breach),
    /// The evidence was written, or could not be.
    Evidence(Result<String, String>),
    /// The drain is over.
    Drained(DrainResult, Duration),
    /// A newer process answers.
    Proven(RestartProof),
    /// None does, for this reason. From here on the restart policy controls the service.
    Unproven(Breach, String),
    /// It gets no more remedies: see the explanation.
    Again(Again),
}

/// A restart that worked.
#[derive(Clone, Debug, PartialEq)]
pub struct RestartProof {
    /// The reason.
    pub breach: Breach,
    /// The process before.
    pub before: Option<ProcKey>,
    /// The process that answers.
    pub now: ProcKey,
    /// From the breach to the answer.
    pub took: Duration,
    /// From the beginning of the drain to the answer.
    pub down: Duration,
    /// Remedies since the supervisor started, including this one.
    pub restarts: u32,
}

/// Why a restart cannot help.
#[derive(Clone, Debug, PartialEq)]
pub struct Again {
    /// What was breached.
    pub breach: Breach,
    /// How long after the last remedy; absent if it was right after the start of the program.
    pub after_relief: Option<Duration>,
    /// How long the program ran.
    pub after_start: Duration,
    /// A breach earlier than this counts as repeated.
    pub within: Duration,
    /// What happens to the service.
    pub then: RepeatPolicy,
}
