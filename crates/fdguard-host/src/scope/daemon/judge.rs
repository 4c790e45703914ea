//! Judges the status of an agent from observations. Pure: no clock, no file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::CloseReason;
use super::marker::LastEntry;

/// Status of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgentStatus {
    /// It is running, as far as known.
    Running,
    /// It has completed its work.
    Completed,
    /// It ended before completing its work.
    Failed,
    /// It was terminated on request.
    Terminated,
}

impl AgentStatus {
    /// Whether it is final.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        self != Self::Running
    }
}

/// Reason for a status. The values are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasonCode {
    /// A session it needs is gone.
    SessionDead,
    /// A process it needs is gone.
    ProcessDead,
    /// None of its files has changed for too long.
    AgentStuck,
    /// Its log ends with a result.
    ResultFound,
    /// Its log ends with a result that reports an error.
    ResultIsError,
    /// Its program exited with status 0.
    ExitedWithSuccess,
}

/// A resource that the agent cannot exist without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MainResource {
    /// A session, and whether it is there.
    Session {
        /// It is open.
        is_alive: bool,
    },
    /// A process.
    Process {
        /// It lives.
        is_alive: bool,
        /// It exited with status 0; unknown for a process that the host did not start.
        has_succeeded: Option<bool>,
    },
}

/// The observed state of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFacts {
    /// As it was judged so far.
    pub status: AgentStatus,
    /// Resources that it cannot exist without.
    pub mains: Vec<MainResource>,
    /// Time since its output last changed; `None` if unknown.
    pub unchanged: Option<Duration>,
    /// Time since its last use; zero while a command runs.
    pub idle: Duration,
}

/// When something is too long.
#[derive(Clone, Copy, Debug)]
pub struct AgentRules {
    /// Time without a change of its output.
    pub stuck_after: Duration,
    /// Without anything done.
    pub idle_after: Duration,
}

/// Problems of an agent, without reading its log.
#[must_use]
pub fn unhealthy(seen: &AgentFacts, rules: AgentRules) -> Vec<ReasonCode> {
    if seen.status.is_terminal() {
        return Vec::new();
    }
    let dead = |main: &MainResource| match main {
        MainResource::Session { is_alive: false } => Some(ReasonCode::SessionDead),
        MainResource::Process {
            is_alive: false, ..
        } => Some(ReasonCode::ProcessDead),
        _ => None,
    };
    let mut reasons: Vec<ReasonCode> = seen.mains.iter().filter_map(dead).collect();
    if seen.unchanged.is_some_and(|age| age >= rules.stuck_after) {
        reasons.push(ReasonCode::AgentStuck);
    }
    reasons.dedup();
    reasons
}

/// The verdict on an agent with problems: its log decides. `None` if it is too early.
#[must_use]
pub fn verdict(
    seen: &AgentFacts,
    reasons: &[ReasonCode],
    last: LastEntry,
) -> Option<(AgentStatus, Vec<ReasonCode>)> {
    if reasons.is_empty() || seen.status.is_terminal() {
        return None;
    }
    let with = |code| [reasons, &[code]].concat();
    match last {
        // An unreadable log may contain a good result.
        LastEntry::Unreadable => None,
        LastEntry::Result { is_error: false } => {
            Some((AgentStatus::Completed, vec![ReasonCode::ResultFound]))
        }
        LastEntry::Result { is_error: true } => {
            Some((AgentStatus::Failed, with(ReasonCode::ResultIsError)))
        }
        LastEntry::Other if has_succeeded(seen, reasons) => {
            Some((AgentStatus::Completed, vec![ReasonCode::ExitedWithSuccess]))
        }
        LastEntry::Other => Some((AgentStatus::Failed, reasons.to_vec())),
    }
}

/// Only programs are gone, and each exited with status 0.
fn has_succeeded(seen: &AgentFacts, reasons: &[ReasonCode]) -> bool {
    let fine = |main: &MainResource| match main {
        MainResource::Process {
            is_alive,
            has_succeeded,
        } => *is_alive || *has_succeeded == Some(true),
        MainResource::Session { is_alive } => *is_alive,
    };
    reasons == [ReasonCode::ProcessDead] && seen.mains.iter().all(fine)
}

/// Whether an open scope is to be cleaned up, and why.
#[must_use]
pub fn due(seen: &AgentFacts, rules: AgentRules) -> Option<CloseReason> {
    if seen.status.is_terminal() {
        Some(CloseReason::Ended)
    } else if seen.idle >= rules.idle_after {
        Some(CloseReason::Idle)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReasonCode::{
        AgentStuck, ExitedWithSuccess, ProcessDead, ResultFound, ResultIsError, SessionDead,
    };

    const RULES: AgentRules = AgentRules {
        stuck_after: Duration::from_secs(900),
        idle_after: Duration::from_secs(6600),
    };
    const ALIVE: MainResource = process(true, None);
    const CRASHED: MainResource = process(false, Some(false));
    const DONE: MainResource = process(false, Some(true));
    const STRANGER_GONE: MainResource = process(false, None);
    const OPEN: MainResource = MainResource::Session { is_alive: true };
    const SHUT: MainResource = MainResource::Session { is_alive: false };
    const RESULT: LastEntry = LastEntry::Result { is_error: false };
    const BAD_RESULT: LastEntry = LastEntry::Result { is_error: true };

    const fn process(is_alive: bool, has_succeeded: Option<bool>) -> MainResource {
        MainResource::Process {
            is_alive,
            has_succeeded,
        }
    }

    fn seen(
        status: AgentStatus,
        mains: &[MainResource],
        unchanged: Option<u64>,
        idle: u64,
    ) -> AgentFacts {
        AgentFacts {
            status,
            mains: mains.to_vec(),
            unchanged: unchanged.map(Duration::from_secs),
            idle: Duration::from_secs(idle),
        }
    }

    type Case<'a> = (
        &'a [MainResource],
        Option<u64>,
        LastEntry,
        Option<(AgentStatus, &'a [ReasonCode])>,
    );

    /// The facts, the last log entry, and the verdict.
    const CASES: &[Case<'static>] = &[
        (&[ALIVE, OPEN], Some(0), LastEntry::Other, None),
        (&[], None, LastEntry::Other, None),
        (&[ALIVE], Some(899), LastEntry::Other, None),
        (&[ALIVE], Some(900), LastEntry::Other, failed(&[AgentStuck])),
        (&[ALIVE], None, LastEntry::Other, None),
        (&[ALIVE], Some(900), RESULT, completed(&[ResultFound])),
        (&[ALIVE], Some(900), LastEntry::Unreadable, None),
        (
            &[CRASHED],
            Some(0),
            LastEntry::Other,
            failed(&[ProcessDead]),
        ),
        (&[CRASHED], Some(0), RESULT, completed(&[ResultFound])),
        (
            &[DONE],
            Some(0),
            BAD_RESULT,
            failed(&[ProcessDead, ResultIsError]),
        ),
        (
            &[DONE],
            None,
            LastEntry::Other,
            completed(&[ExitedWithSuccess]),
        ),
        (
            &[DONE, CRASHED],
            None,
            LastEntry::Other,
            failed(&[ProcessDead]),
        ),
        (
            &[STRANGER_GONE],
            None,
            LastEntry::Other,
            failed(&[ProcessDead]),
        ),
        (&[SHUT], Some(0), LastEntry::Other, failed(&[SessionDead])),
        (&[SHUT], Some(0), RESULT, completed(&[ResultFound])),
        (
            &[SHUT, CRASHED],
            Some(900),
            LastEntry::Other,
            failed(&[SessionDead, ProcessDead, AgentStuck]),
        ),
        (
            &[DONE],
            Some(900),
            LastEntry::Other,
            failed(&[ProcessDead, AgentStuck]),
        ),
    ];

    const fn failed(reasons: &[ReasonCode]) -> Option<(AgentStatus, &[ReasonCode])> {
        Some((AgentStatus::Failed, reasons))
    }

    const fn completed(reasons: &[ReasonCode]) -> Option<(AgentStatus, &[ReasonCode])> {
        Some((AgentStatus::Completed, reasons))
    }

    #[test]
    fn r53_reasons_and_what_they_come_to() {
        for (mains, unchanged, last, expected) in CASES {
            let seen = seen(AgentStatus::Running, mains, *unchanged, 0);
            let is = verdict(&seen, &unhealthy(&seen, RULES), *last);
            let expected = expected.map(|(status, reasons)| (status, reasons.to_vec()));
            assert_eq!(is, expected, "{mains:?} {unchanged:?} {last:?}");
        }
    }

    #[test]
    fn r53_what_has_ended_is_never_judged_again() {
        for status in [
            AgentStatus::Completed,
            AgentStatus::Failed,
            AgentStatus::Terminated,
        ] {
            let seen = seen(status, &[CRASHED, SHUT], Some(10_000), 0);
            assert_eq!(unhealthy(&seen, RULES), []);
            assert_eq!(verdict(&seen, &[ProcessDead], LastEntry::Other), None);
            assert_eq!(due(&seen, RULES), Some(CloseReason::Ended));
        }
    }

    #[test]
    fn r52_idle_for_110_minutes_is_too_long() {
        let at = |idle| due(&seen(AgentStatus::Running, &[ALIVE], None, idle), RULES);
        assert_eq!(at(6599), None);
        assert_eq!(at(6600), Some(CloseReason::Idle));
    }
}
