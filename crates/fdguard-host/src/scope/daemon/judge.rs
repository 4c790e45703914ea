//! Judges the status of an agent from observations. Pure: no clock, no file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::Why;
use super::marker::Last;

/// Status of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It is running, as far as known.
    Running,
    /// It has completed its work.
    Completed,
    /// It ended before completing its work.
    Failed,
    /// It was terminated on request.
    Terminated,
}

impl Status {
    /// It does not change any more.
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

/// A resource without which there is no agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Main {
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

/// What was seen of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// As it was judged so far.
    pub status: Status,
    /// What it cannot be without.
    pub mains: Vec<Main>,
    /// Since something that it writes has changed; absent when nothing of it is known.
    pub unchanged: Option<Duration>,
    /// Since something was done with it; nothing while a command runs.
    pub idle: Duration,
}

/// When something is too long.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Without a change of what it writes.
    pub stuck_after: Duration,
    /// Without anything done.
    pub idle_after: Duration,
}

/// Problems of an agent, without reading its log.
#[must_use]
pub fn unhealthy(seen: &Seen, rules: Rules) -> Vec<ReasonCode> {
    if seen.status.is_terminal() {
        return Vec::new();
    }
    let dead = |main: &Main| match main {
        Main::Session { is_alive: false } => Some(ReasonCode::SessionDead),
        Main::Process {
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
    seen: &Seen,
    reasons: &[ReasonCode],
    last: Last,
) -> Option<(Status, Vec<ReasonCode>)> {
    if reasons.is_empty() || seen.status.is_terminal() {
        return None;
    }
    let with = |code| [reasons, &[code]].concat();
    match last {
        // A log that cannot be read may say that all is well.
        Last::Unreadable => None,
        Last::Result { is_error: false } => {
            Some((Status::Completed, vec![ReasonCode::ResultFound]))
        }
        Last::Result { is_error: true } => Some((Status::Failed, with(ReasonCode::ResultIsError))),
        Last::Other if has_succeeded(seen, reasons) => {
            Some((Status::Completed, vec![ReasonCode::ExitedWithSuccess]))
        }
        Last::Other => Some((Status::Failed, reasons.to_vec())),
    }
}

/// Only programs are gone, and each exited with status 0.
fn has_succeeded(seen: &Seen, reasons: &[ReasonCode]) -> bool {
    let fine = |main: &Main| match main {
        Main::Process {
            is_alive,
            has_succeeded,
        } => *is_alive || *has_succeeded == Some(true),
        Main::Session { is_alive } => *is_alive,
    };
    reasons == [ReasonCode::ProcessDead] && seen.mains.iter().all(fine)
}

/// Whether an open scope is to be cleaned up, and why.
#[must_use]
pub fn due(seen: &Seen, rules: Rules) -> Option<Why> {
    if seen.status.is_terminal() {
        Some(Why::Ended)
    } else if seen.idle >= rules.idle_after {
        Some(Why::Idle)
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

    const RULES: Rules = Rules {
        stuck_after: Duration::from_secs(900),
        idle_after: Duration::from_secs(6600),
    };
    const ALIVE: Main = process(true, None);
    const CRASHED: Main = process(false, Some(false));
    const DONE: Main = process(false, Some(true));
    const STRANGER_GONE: Main = process(false, None);
    const OPEN: Main = Main::Session { is_alive: true };
    const SHUT: Main = Main::Session { is_alive: false };
    const RESULT: Last = Last::Result { is_error: false };
    const BAD_RESULT: Last = Last::Result { is_error: true };

    const fn process(is_alive: bool, has_succeeded: Option<bool>) -> Main {
        Main::Process {
            is_alive,
            has_succeeded,
        }
    }

    fn seen(status: Status, mains: &[Main], unchanged: Option<u64>, idle: u64) -> Seen {
        Seen {
            status,
            mains: mains.to_vec(),
            unchanged: unchanged.map(Duration::from_secs),
            idle: Duration::from_secs(idle),
        }
    }

    type Case<'a> = (
        &'a [Main],
        Option<u64>,
        Last,
        Option<(Status, &'a [ReasonCode])>,
    );

    /// What is seen, what the log says last, and the verdict.
    const CASES: &[Case<'static>] = &[
        (&[ALIVE, OPEN], Some(0), Last::Other, None),
        (&[], None, Last::Other, None),
        (&[ALIVE], Some(899), Last::Other, None),
        (&[ALIVE], Some(900), Last::Other, failed(&[AgentStuck])),
        (&[ALIVE], None, Last::Other, None),
        (&[ALIVE], Some(900), RESULT, completed(&[ResultFound])),
        (&[ALIVE], Some(900), Last::Unreadable, None),
        (&[CRASHED], Some(0), Last::Other, failed(&[ProcessDead])),
        (&[CRASHED], Some(0), RESULT, completed(&[ResultFound])),
        (
            &[DONE],
            Some(0),
            BAD_RESULT,
            failed(&[ProcessDead, ResultIsError]),
        ),
        (&[DONE], None, Last::Other, completed(&[ExitedWithSuccess])),
        (&[DONE, CRASHED], None, Last::Other, failed(&[ProcessDead])),
        (&[STRANGER_GONE], None, Last::Other, failed(&[ProcessDead])),
        (&[SHUT], Some(0), Last::Other, failed(&[SessionDead])),
        (&[SHUT], Some(0), RESULT, completed(&[ResultFound])),
        (
            &[SHUT, CRASHED],
            Some(900),
            Last::Other,
            failed(&[SessionDead, ProcessDead, AgentStuck]),
        ),
        (
            &[DONE],
            Some(900),
            Last::Other,
            failed(&[ProcessDead, AgentStuck]),
        ),
    ];

    const fn failed(reasons: &[ReasonCode]) -> Option<(Status, &[ReasonCode])> {
        Some((Status::Failed, reasons))
    }

    const fn completed(reasons: &[ReasonCode]) -> Option<(Status, &[ReasonCode])> {
        Some((Status::Completed, reasons))
    }

    #[test]
    fn r53_reasons_and_what_they_come_to() {
        for (mains, unchanged, last, expected) in CASES {
            let seen = seen(Status::Running, mains, *unchanged, 0);
            let is = verdict(&seen, &unhealthy(&seen, RULES), *last);
            let expected = expected.map(|(status, reasons)| (status, reasons.to_vec()));
            assert_eq!(is, expected, "{mains:?} {unchanged:?} {last:?}");
        }
    }

    #[test]
    fn r53_what_has_ended_is_never_judged_again() {
        for status in [Status::Completed, Status::Failed, Status::Terminated] {
            let seen = seen(status, &[CRASHED, SHUT], Some(10_000), 0);
            assert_eq!(unhealthy(&seen, RULES), []);
            assert_eq!(verdict(&seen, &[ProcessDead], Last::Other), None);
            assert_eq!(due(&seen, RULES), Some(Why::Ended));
        }
    }

    #[test]
    fn r52_idle_for_110_minutes_is_too_long() {
        let at = |idle| due(&seen(Status::Running, &[ALIVE], None, idle), RULES);
        assert_eq!(at(6599), None);
        assert_eq!(at(6600), Some(Why::Idle));
    }
}
