//! The report of a breach: what leaked, from which line, what was done, and what to do now.

use std::fmt::Write as _;
use std::time::Duration;

use fdguard_core::units;

use crate::budget::{Excess, Measure};
use crate::lifecycle::{Again, Breach, RepeatPolicy, RestartProof};
use crate::meter::Leak;

/// If the program reaches this share of a level at the start, the level is too low for it, however
/// little it leaks.
const AT_REST: f64 = 0.7;

/// The result of a finished remedy.
#[derive(Clone, Debug)]
pub struct RemedyReport<'a> {
    /// The name of the service.
    pub service: &'a str,
    /// What was breached.
    pub breach: &'a Breach,
    /// What leaks, according to the meter before the restart.
    pub leaks: &'a [Leak],
    /// The line that opened it, if the program is traced.
    pub line: Option<&'a str>,
    /// The path of the evidence.
    pub evidence: Option<&'a str>,
    /// The command of the service, to be traced.
    pub command: &'a str,
}

impl RemedyReport<'_> {
    /// The report after a restart that a newer process has proven.
    #[must_use]
    pub fn proven(&self, proof: &RestartProof) -> String {
        let mut text = self.opening();
        let before = proof.before.map_or_else(String::new, |before| {
            format!(" replaced {} and", before.pid)
        });
        let _infallible = write!(
            text,
            " Restarted: process {}{before} was ready after {} (down for {}).",
            proof.now.pid,
            short(proof.took),
            short(proof.down),
        );
        text.push_str(&self.closing(Some(proof.now.pid)));
        text
    }

    /// The report after a restart that was not proven.
    #[must_use]
    pub fn unproven(&self, why: &str) -> String {
        let mut text = self.opening();
        let _infallible = write!(text, " The restart is not verified: {why}.");
        text.push_str(&self.closing(None));
        text
    }

    /// The report when it is no longer restarted.
    #[must_use]
    pub fn again(&self, again: &Again) -> String {
        let mut text = self.opening();
        let when = match again.after_remedy {
            Some(after) => format!("{} after a restart for the same reason", short(after)),
            None => format!("{} after its start", short(again.after_start)),
        };
        let _infallible = write!(text, " This happened {when}: {}.", cause(&again.breach));
        text.push_str(match again.then {
            RepeatPolicy::Keep => {
                " It keeps running; fdguard will not restart it for its budget again."
            }
            RepeatPolicy::Stop => " It is stopped for good (--when-again stop).",
        });
        text.push_str(&self.closing(None));
        text
    }

    /// What was breached, and the descriptors that cause it.
    fn opening(&self) -> String {
        let mut text = format!("{}: {}.", self.service, breached(self.breach));
        for leak in self.leaks.iter().take(2) {
            let _infallible = write!(text, " {}.", leaking(leak));
        }
        if let Some(line) = self.line {
            let _infallible = write!(text, " Opened at {line}.");
        }
        text
    }

    /// What to do now: the line is found in the process that runs, or in a new one.
    fn closing(&self, running: Option<u32>) -> String {
        let mut text = " A restart is not a fix: ".to_owned();
        let _infallible = match (self.line, running) {
            (Some(line), _) => write!(text, "look for a missing close at {line}."),
            (None, Some(pid)) => write!(text, "find the line with: fdguard trace {pid}"),
            (None, None) => write!(
                text,
                "find the line with: fdguard trace -- {}",
                self.command
            ),
        };
        if let Some(place) = self.evidence {
            let _infallible = write!(text, " (evidence: {place})");
        }
        text
    }
}

/// The `reason` of an event line.
#[must_use]
pub fn reason(what: &Measure) -> &'static str {
    match what {
        Measure::Fds => "fd_budget",
        Measure::Highest => "fd_highest_budget",
        Measure::Class(_) => "fd_class_budget",
        Measure::Growth => "fd_growth_budget",
        Measure::Wall => "fd_wall_budget",
        Measure::Zombies => "zombie_budget",
        Measure::Memory => "memory_budget",
        Measure::Children => "children_budget",
    }
}

/// The measurement in words, also for a warning.
#[must_use]
pub fn passed(what: &Measure, passed: &Excess) -> String {
    let of = passed
        .pid
        .map_or_else(String::new, |pid| format!(" in process {pid}"));
    let (value, level) = (passed.value, passed.level);
    match what {
        Measure::Fds => {
            let wall = passed
                .wall
                .map_or_else(String::new, |wall| format!(" of {}", plain(wall)));
            format!(
                "{}{wall} descriptors open{of} (level {})",
                plain(value),
                plain(level)
            )
        }
        Measure::Highest => format!(
            "descriptor {} is open{of} (level {}; select() fails from 1024 up)",
            plain(value),
            plain(level)
        ),
        Measure::Class(class) => format!(
            "{} {class} descriptors open{of} (level {})",
            plain(value),
            plain(level)
        ),
        Measure::Growth => format!(
            "descriptors leak at {} per minute (level {})",
            plain(value),
            plain(level)
        ),
        Measure::Wall => format!(
            "time to the nearest limit: {} (level {})",
            seconds(value),
            seconds(level)
        ),
        Measure::Zombies => format!(
            "{} zombies not reaped (level {})",
            plain(value),
            plain(level)
        ),
        Measure::Memory => format!(
            "{} of memory in use (level {})",
            units::size(value),
            units::size(level)
        ),
        Measure::Children => format!(
            "{} processes running besides the program (level {})",
            plain(value),
            plain(level)
        ),
    }
}

fn breached(breach: &Breach) -> String {
    passed(&breach.what, &breach.passed)
}

fn leaking(leak: &Leak) -> String {
    let class = leak.class.as_ref().map_or_else(
        || "descriptors of unknown class".to_owned(),
        |class| format!("{class} descriptors"),
    );
    let target = leak
        .target
        .as_ref()
        .map_or_else(String::new, |target| format!(" on {}", target.to_lossy()));
    let rate = leak.per_minute.map_or_else(String::new, |rate| {
        format!(", growing by {}", units::rate(rate / 60.0))
    });
    if leak.proven {
        format!("Leak: {} {class}{target} open{rate}", leak.count)
    } else {
        format!(
            "Suspected leak: {} {class}{target} opened recently and still open{rate}",
            leak.count
        )
    }
}

/// Why a restart cannot help, derived from the figures.
fn cause(breach: &Breach) -> String {
    let Excess {
        value,
        level,
        first,
        ..
    } = &breach.passed;
    let Some((rest, passed)) = first else {
        return "a restart does not help for long".to_owned();
    };
    let is_falling = breach.what == Measure::Wall;
    if !is_falling && *rest >= level * AT_REST {
        return format!(
            "it already has {} at start, so the level of {} is too low; raise it",
            plain(*rest),
            plain(*level)
        );
    }
    let elapsed = passed.as_secs_f64();
    if is_falling || elapsed <= 0.0 {
        return "it leaks too fast for restarts to help".to_owned();
    }
    let rate = units::rate((value - rest) / elapsed);
    format!(
        "it went from {} to {} in {} ({rate}), too fast for restarts to help",
        plain(*rest),
        plain(*value),
        short(*passed)
    )
}

fn short(time: Duration) -> String {
    units::short_duration(time.as_secs_f64())
}

fn seconds(value: f64) -> String {
    if value.is_finite() {
        units::duration(value)
    } else {
        "unlimited".to_owned()
    }
}

/// Without a decimal point for whole numbers.
fn plain(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    format!("{rounded}")
}

#[cfg(test)]
mod tests;
