//! The progress of a tree's end, and the next action. Pure: times are nanoseconds of the monotonic
//! clock.

use std::time::Duration;

use super::message::nanos;
use crate::tree::StopPlan;

/// How long the program itself has to end its descendants before they are signalled too.
const HEAD_START: Duration = Duration::from_millis(500);
/// How often to look for processes created after the others were signalled, once the program has
/// ended. While it is alive, processes that it starts get as much time as its other descendants
/// had.
const AGAIN: Duration = Duration::from_millis(25);

/// How far the end has progressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not requested.
    Running,
    /// The program was signalled; the rest too, at `all` for the last time.
    Asked {
        signal: i32,
        since: u64,
        kill_at: u64,
        all: Option<u64>,
    },
    /// Everything that is left is being killed.
    Killing,
}

/// The action to take now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Send this signal to the program, before any other process.
    AskMain(i32),
    /// Send this signal to all others that did not get it yet.
    AskAll(i32),
    /// Send KILL to all that are left.
    Kill,
}

impl Phase {
    /// The end was requested. No grace means KILL at once; a second request can only speed it up,
    /// and another signal is sent as well.
    pub(super) fn ask(&mut self, stop: StopPlan, now: u64) -> Due {
        let wanted = now.saturating_add(nanos(stop.grace));
        let (kill_at, before) = match *self {
            Self::Killing => return Due::Nothing,
            Self::Asked {
                signal, kill_at, ..
            } => (kill_at.min(wanted), Some(signal)),
            Self::Running => (wanted, None),
        };
        if kill_at <= now {
            *self = Self::Killing;
            return Due::Kill;
        }
        match self {
            Self::Asked { kill_at: at, .. } if before == Some(stop.signal) => {
                *at = kill_at;
                Due::Nothing
            }
            _ => {
                *self = Self::Asked {
                    signal: stop.signal,
                    since: now,
                    kill_at,
                    all: None,
                };
                Due::AskMain(stop.signal)
            }
        }
    }

    /// The action for the current time.
    pub(super) fn due(&mut self, main_lives: bool, now: u64) -> Due {
        match self {
            Self::Asked { kill_at, .. } if *kill_at <= now => {
                *self = Self::Killing;
                Due::Kill
            }
            Self::Asked {
                signal, since, all, ..
            } if spread_at(*since, *all, main_lives) <= now => {
                *all = Some(now);
                Due::AskAll(*signal)
            }
            Self::Killing => Due::Kill,
            _ => Due::Nothing,
        }
    }

    /// The time of the next action if nothing happens.
    pub(super) fn next(&self, main_lives: bool) -> Option<u64> {
        match *self {
            Self::Running | Self::Killing => None,
            Self::Asked {
                since,
                kill_at,
                all,
                ..
            } => Some(kill_at.min(spread_at(since, all, main_lives))),
        }
    }
}

/// When all others are signalled, including those created since the last time.
fn spread_at(since: u64, last: Option<u64>, main_lives: bool) -> u64 {
    let (from, pause) = match (last, main_lives) {
        (_, true) => (last.unwrap_or(since), HEAD_START),
        (Some(last), false) => (last, AGAIN),
        (None, false) => return 0,
    };
    from.saturating_add(nanos(pause))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn stop(signal: i32, seconds: u64) -> StopPlan {
        StopPlan {
            signal,
            grace: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn the_program_is_asked_then_all_then_they_are_killed() {
        let mut phase = Phase::Running;
        assert_eq!(phase.ask(stop(15, 10), 0), Due::AskMain(15));
        assert_eq!(phase.due(true, SECOND / 4), Due::Nothing);
        assert_eq!(phase.next(true), Some(SECOND / 2));
        assert_eq!(phase.due(true, SECOND / 2), Due::AskAll(15));
        assert_eq!(phase.due(true, SECOND - 1), Due::Nothing);
        assert_eq!(phase.next(true), Some(SECOND));
        assert_eq!(phase.due(true, SECOND), Due::AskAll(15), "newcomers");
        assert_eq!(phase.due(true, 10 * SECOND), Due::Kill);
        assert_eq!(phase.due(true, 11 * SECOND), Due::Kill);
    }

    #[test]
    fn descendants_are_asked_when_the_program_has_ended() {
        let mut phase = Phase::Running;
        assert_eq!(phase.ask(stop(15, 10), 0), Due::AskMain(15));
        assert_eq!(phase.due(false, 1), Due::AskAll(15));
        assert_eq!(phase.due(false, 2), Due::Nothing);
        assert_eq!(phase.next(false), Some(1 + SECOND / 40));
        assert_eq!(phase.due(false, SECOND / 10), Due::AskAll(15), "newcomers");
    }

    #[test]
    fn a_second_wish_hurries_and_never_delays() {
        let mut phase = Phase::Running;
        phase.ask(stop(15, 10), 0);
        assert_eq!(phase.ask(stop(15, 60), 1), Due::Nothing);
        assert_eq!(phase.ask(stop(15, 1), 2), Due::Nothing);
        assert_eq!(phase.due(true, SECOND + 2), Due::Kill);
        assert_eq!(phase.ask(stop(15, 1), 3), Due::Nothing);
    }

    #[test]
    fn another_signal_is_sent_too() {
        let mut phase = Phase::Running;
        phase.ask(stop(15, 10), 0);
        assert_eq!(phase.ask(stop(3, 10), SECOND), Due::AskMain(3));
        assert_eq!(phase.due(true, 10 * SECOND), Due::Kill);
    }

    #[test]
    fn no_grace_is_a_kill() {
        let mut phase = Phase::Running;
        assert_eq!(phase.ask(stop(15, 0), 5), Due::Kill);
        assert_eq!(phase, Phase::Killing);
    }

    #[test]
    fn a_grace_without_an_end_is_one() {
        let mut phase = Phase::Running;
        let forever = StopPlan {
            signal: 15,
            grace: Duration::MAX,
        };
        assert_eq!(phase.ask(forever, 5), Due::AskMain(15));
        assert_eq!(phase.due(true, 1 << 62), Due::AskAll(15));
        assert_eq!(phase.due(true, 1 << 62), Due::Nothing);
    }
}
