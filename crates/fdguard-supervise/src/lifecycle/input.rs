//! The inputs and actions of a lifecycle.

use std::time::Duration;

use fdguard_proc::ProcKey;
use fdguard_process::tree::Exit;

use super::policy::Halt;
use super::settings::{LifecycleSettings, RepeatPolicy};
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
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A request from the supervisor.
    Asked(Request),
    /// The program was started.
    Started(Option<ProcKey>),
    /// It could not be started.
    StartFailed {
        /// The status that a shell would report.
        code: u8,
        /// From 0 to 1: services that fail together do not restart together.
        chance: f64,
    },
    /// It is ready: this process answered, or there is no readiness check.
    Ready(Option<ProcKey>),
    /// It does not work.
    Unhealthy(Unhealthy),
    /// The program exited and left processes.
    Left(LeftProcesses),
    /// They are the service from now on.
    Adopted(Option<ProcKey>),
    /// Nothing is left of the run.
    Exited {
        /// How it ended.
        end: RunEnd,
        /// From 0 to 1, as for a failed start.
        chance: f64,
    },
    /// A budget is breached.
    Breached(Breach),
    /// The breach continued and is well beyond its level now: nothing is worth waiting for.
    Urgent,
    /// The measure fell back by itself.
    Cleared(Measure),
    /// The evidence is written to this path, or could not be.
    EvidenceDone(Result<String, String>),
    /// The drain is over.
    Drained(DrainResult),
    /// Nothing, but time passed.
    Time,
}

/// A request from the supervisor.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Its dependencies are ready.
    Start,
    /// This dependency is down.
    FailWaiting(String),
    /// Stop for good.
    Stop,
    /// Stop for good, at once.
    Kill,
    /// Begin again with these settings.
    Reload(Box<LifecycleSettings>),
}

/// Why a service does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unhealthy {
    /// A check failed this many times in a row.
    Check { why: String, failures: u32 },
    /// Its watchdog.
    Watchdog(&'static str),
    /// It was not ready in time.
    NotReady,
}

impl Unhealthy {
    /// The reason of the restart.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Check { .. } => "health",
            Self::Watchdog(_) => "watchdog",
            Self::NotReady => "not_ready",
        }
    }
}

/// Processes that outlived the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftProcesses {
    /// Their numbers, if one of them listens.
    pub(crate) pids: Vec<u32>,
    /// Where they listen.
    pub(crate) listening: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunEnd {
    /// The program.
    pub(crate) pid: u32,
    /// Its exit; absent if it is not known.
    pub(crate) exit: Option<Exit>,
    /// How long it ran.
    pub(crate) up: Duration,
    /// Processes that were killed.
    pub(crate) killed: u32,
    /// Orphans that were reaped.
    pub(crate) reaped: u32,
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
pub(crate) enum Action {
    /// Start the program. The result is [`Input::Started`] or [`Input::StartFailed`].
    Start,
    /// It is ready: begin the health checks.
    Serve,
    /// Abort the program, for a core dump of the hanging process.
    Abort,
    /// End the run, killing what is left after this time.
    End(Duration),
    /// Kill the run.
    Kill,
    /// Treat the processes that the program left as the service: [`Input::Adopted`].
    Adopt,
    /// Write evidence about this process within this time: [`Input::EvidenceDone`].
    WriteEvidence(Option<u32>, Duration),
    /// Stop writing it.
    StopEvidence,
    /// Drain the service within this time: [`Input::Drained`].
    BeginDrain(Duration),
    /// Stop the drain.
    StopDrain,
    /// Log this.
    Log(Notice),
}

/// What to log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Notice {
    /// It cannot start, because this service is down.
    DependencyFailed(String),
    /// It does not work, and is being stopped.
    Unhealthy(Unhealthy),
    /// The program left a server in the background.
    Background(LeftProcesses),
    /// What the program left is being ended.
    Orphans,
    /// Nothing is left of the run.
    Exited(RunEnd),
    /// It is restarted.
    Restart { reason: &'static str, exit: Exit },
    /// The restart is delayed.
    BackOff(Duration),
    /// It stays down.
    Halted { halt: Halt, exit: Exit },
    /// The remedy of a breach.
    Remedy(RemedyNotice),
}

/// What to log about a remedy.
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
    /// None does, for this reason.
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
    pub after_remedy: Option<Duration>,
    /// How long the program ran.
    pub after_start: Duration,
    /// A breach earlier than this counts as repeated.
    pub within: Duration,
    /// What happens to the service.
    pub then: RepeatPolicy,
}
