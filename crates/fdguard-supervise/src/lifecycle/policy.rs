//! The restart policy. Pure: times and random values are arguments.
//!
//! The first restart is immediate. After that, starts are at least 100 ms apart, doubling with
//! every run shorter than `min_uptime` and with every fourth run shorter than `reset_after`; a
//! longer run resets that. So a service that is killed occasionally is back at once, and one that
//! cannot run costs little. After more than `crash_loop` short runs the service stays down.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use fdguard_core::units;
use fdguard_process::tree::Exit;

/// After which exits a service is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartWhen {
    /// After every exit.
    Always,
    /// Unless it exited with status 0.
    OnFailure,
    /// Never.
    Never,
}

impl FromStr for RestartWhen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "always" => Ok(Self::Always),
            "on-failure" => Ok(Self::OnFailure),
            "never" => Ok(Self::Never),
            _ => Err(format!("{text:?} is not one of always, on-failure, never")),
        }
    }
}

/// The distance between starts: `100ms..30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spacing {
    /// From the second restart on.
    pub base: Duration,
    /// The maximum.
    pub most: Duration,
}

impl FromStr for Spacing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if matches!(text, "off" | "0") {
            return Ok(Self {
                base: Duration::ZERO,
                most: Duration::ZERO,
            });
        }
        let (base, most) = text.split_once("..").unwrap_or((text, text));
        let (base, most) = (units::parse_duration(base)?, units::parse_duration(most)?);
        if most < base {
            return Err(format!(
                "{text:?} is not an ascending range: use MIN..MAX, such as 100ms..30s"
            ));
        }
        Ok(Self { base, most })
    }
}

/// How many restarts after short runs are too many: `5/60s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashLoop {
    /// How many are tolerated.
    pub restarts: u32,
    /// Within this time.
    pub within: Duration,
}

impl FromStr for CrashLoop {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not COUNT/DURATION: use 5/60s, or off");
        let (restarts, within) = text.split_once('/').ok_or_else(wrong)?;
        let restarts = restarts.parse().ok().ok_or_else(wrong)?;
        let within = units::parse_duration(within)?;
        if within.is_zero() {
            return Err(wrong());
        }
        Ok(Self { restarts, within })
    }
}

/// The restart settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartPolicy {
    /// After which exits.
    pub restart: RestartWhen,
    /// Statuses after which it stays down, whatever `restart` is.
    pub stop_on: Vec<u8>,
    /// The distance between starts.
    pub spacing: Spacing,
    /// Runs shorter than this count as crashes.
    pub min_uptime: Duration,
    /// Reset the back-off after the service has run this long.
    pub reset_after: Duration,
    /// When to give up; absent: never.
    pub crash_loop: Option<CrashLoop>,
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// It exited by itself.
    Itself,
    /// It was stopped: not ready in time, or no longer healthy.
    Sick,
    /// It was stopped for a reason that does not affect its next run: a budget, a reload.
    Asked,
}

/// What follows an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Another start, at this moment.
    Start {
        /// The moment; the exit's own for "at once".
        at: Instant,
    },
    /// Nothing: it has finished its work.
    Done,
    /// Nothing: a restart would not help.
    Halt(Halt),
}

/// Why a service stays down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// It failed, and must not be restarted.
    Never,
    /// It exited with one of the statuses of `stop_on`.
    StopOn,
    /// 126 or 127: it cannot be run.
    NotRunnable,
    /// It exited too soon too often.
    CrashLoop {
        /// Short runs.
        ends: u32,
        /// Within this time.
        within: Duration,
    },
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "restart=never",
            Self::StopOn => "stop_on",
            Self::NotRunnable => "not_runnable",
            Self::CrashLoop { .. } => "crash_loop",
        })
    }
}

/// A short run counts four quarters, one within `reset_after` a single one.
const QUICK: u32 = 4;

/// The history of a service's runs.
#[derive(Clone, Debug, Default)]
pub(super) struct RestartHistory {
    started: Option<Instant>,
    /// Quarters of doublings.
    quarters: u32,
    quick: VecDeque<Instant>,
}

impl RestartHistory {
    /// A run began.
    pub(super) fn started(&mut self, now: Instant) {
        self.started = Some(now);
    }

    /// A run is over. `chance` is from 0 to 1: services that fail together do not restart together.
    pub(super) fn ended(
        &mut self,
        policy: &RestartPolicy,
        now: Instant,
        exit: Exit,
        cause: EndCause,
        chance: f64,
    ) -> NextStep {
        if let Exit::Code(126 | 127) = exit {
            return NextStep::Halt(Halt::NotRunnable);
        }
        if cause == EndCause::Asked {
            return NextStep::Start { at: now };
        }
        if let Exit::Code(code) = exit
            && policy.stop_on.contains(&code)
        {
            return match code {
                0 => NextStep::Done,
                _ => NextStep::Halt(Halt::StopOn),
            };
        }
        let is_success = exit == Exit::Code(0) && cause == EndCause::Itself;
        match policy.restart {
            RestartWhen::Never | RestartWhen::OnFailure if is_success => return NextStep::Done,
            RestartWhen::Never => return NextStep::Halt(Halt::Never),
            RestartWhen::Always | RestartWhen::OnFailure => {}
        }
        self.count(policy, now, cause);
        match policy.crash_loop {
            Some(limit) if self.is_loop(limit, now) => NextStep::Halt(Halt::CrashLoop {
                ends: u32::try_from(self.quick.len()).unwrap_or(u32::MAX),
                within: limit.within,
            }),
            _ => NextStep::Start {
                at: self.next_start(policy, now, chance),
            },
        }
    }

    /// Whether it recently had a short run.
    #[must_use]
    pub(super) fn is_troubled(&self) -> bool {
        self.quarters >= QUICK
    }

    /// Clears the history: a fresh start was requested.
    pub(super) fn forget(&mut self) {
        self.quarters = 0;
        self.quick.clear();
    }

    fn count(&mut self, policy: &RestartPolicy, now: Instant, cause: EndCause) {
        let up = self.started.map_or(Duration::ZERO, |at| now - at);
        if up < policy.min_uptime || cause == EndCause::Sick {
            self.quarters = self.quarters.saturating_add(QUICK);
            self.quick.push_back(now);
        } else if up < policy.reset_after {
            self.quarters = self.quarters.saturating_add(1);
        } else {
            self.forget();
        }
    }

    fn is_loop(&mut self, limit: CrashLoop, now: Instant) -> bool {
        while self
            .quick
            .front()
            .is_some_and(|at| now.saturating_duration_since(*at) > limit.within)
        {
            self.quick.pop_front();
        }
        self.quick.len() > usize::try_from(limit.restarts).unwrap_or(usize::MAX)
    }

    fn next_start(&self, policy: &RestartPolicy, now: Instant, chance: f64) -> Instant {
        let doublings = self.quarters / QUICK;
        if doublings < 2 {
            return now;
        }
        let factor = 1_u32.checked_shl(doublings - 2).unwrap_or(u32::MAX);
        let apart = policy.spacing.base.saturating_mul(factor);
        let apart = apart.min(policy.spacing.most);
        // A quarter more or less.
        let apart = apart.mul_f64(0.75 + chance.clamp(0.0, 1.0) / 2.0);
        self.started.map_or(now, |at| (at + apart).max(now))
    }
}

#[cfg(test)]
mod tests;
