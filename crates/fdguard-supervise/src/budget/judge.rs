//! Compares readings with budgets: when to warn, once, and when to act.

use std::collections::BTreeMap;
use std::time::Duration;

use fdguard_core::class_pattern::ClassPattern;
use fdguard_core::count::as_f64;
use fdguard_core::wall::FD_SETSIZE;
use fdguard_core::{Gap, Pid};

use super::reading::{HighestFd, Observation, ProcessReading, ServiceReading};
use super::{Amount, Budget, Measure};

/// A warning is repeated only after the value fell below this fraction of its level.
const BACK_BELOW: f64 = 0.9;
/// From this fraction of a limit on, one look is enough.
const AT_THE_WALL: f64 = 0.98;
/// From this many times its action level on, memory is not measured a second time: if it keeps
/// growing, it takes down the machine.
const FAR_BEYOND: f64 = 1.5;
/// To act, the level must be exceeded in this many looks in a row,
const LOOKS: u32 = 2;
/// over at least this long: a burst of connections is not a reason to restart.
const HOLDS: Duration = Duration::from_secs(1);

/// The verdict on one budget.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetVerdict {
    /// The measure.
    pub what: Measure,
    /// The verdict.
    pub kind: Kind,
}

/// The kinds of verdicts.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// The warning level is exceeded.
    Warn(Excess),
    /// The action level is exceeded, and not only for a moment.
    Act(Excess),
    /// It fell back.
    Cleared(Excess),
    /// It cannot be measured. Reported once.
    Unmeasured(Gap),
}

/// A measurement with its level. Units are those of the measure: descriptors, descriptors per
/// minute, seconds, bytes, processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Excess {
    /// The process; absent for measurements of all together.
    pub pid: Option<Pid>,
    /// What was measured.
    pub value: f64,
    /// The level.
    pub level: f64,
    /// The limit that the level belongs to.
    pub wall: Option<f64>,
    /// The first value since the start, and how long ago that was.
    pub first: Option<(f64, Duration)>,
}

impl Excess {
    /// Whether a memory budget is exceeded so far that nothing is worth waiting for.
    #[must_use]
    pub fn is_urgent(&self, what: &Measure) -> bool {
        *what == Measure::Memory && self.level > 0.0 && self.value >= self.level * FAR_BEYOND
    }
}

/// What was measured and reported before, for one run of a service.
#[derive(Clone, Debug, Default)]
pub struct BudgetHistory {
    states: BTreeMap<String, State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    told: ReportedLevel,
    /// Looks in a row beyond the action level, and when the first was.
    beyond: Option<(u32, Duration)>,
    first: Option<(f64, Duration)>,
    gap_told: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum ReportedLevel {
    #[default]
    Nothing,
    Warned,
    Acted,
}

impl BudgetHistory {
    /// A new process replaced the first: warnings may be repeated, but not reports of unmeasured
    /// values.
    pub fn restarted(&mut self) {
        for state in self.states.values_mut() {
            *state = State {
                gap_told: state.gap_told,
                ..State::default()
            };
        }
    }
}

/// The changes of these budgets after this reading.
pub fn judge(
    budgets: &[Budget],
    reading: &ServiceReading,
    memory: &mut BudgetHistory,
) -> Vec<BudgetVerdict> {
    let mut news = Vec::new();
    for budget in budgets {
        let state = memory.states.entry(budget.what.to_string()).or_default();
        let (measured, gap) = measure(budget, reading);
        let mut say = |kind| {
            news.push(BudgetVerdict {
                what: budget.what.clone(),
                kind,
            });
        };
        if let Some(gap) = gap.filter(|_| !state.gap_told) {
            state.gap_told = true;
            say(Kind::Unmeasured(gap));
        }
        match measured {
            Some(measured) => {
                if let Some(news) = state.weigh(&budget.what, &measured, reading.at) {
                    say(news);
                }
            }
            None => state.beyond = None,
        }
    }
    news
}

/// A measurement with the levels that apply to it.
#[derive(Clone, Copy, Debug)]
struct Measured {
    pid: Option<Pid>,
    value: f64,
    warn: Option<f64>,
    act: Option<f64>,
    wall: Option<f64>,
    /// Whether lower is worse.
    falling: bool,
}

impl Measured {
    /// How far beyond a level: 1 is at it, more is worse.
    fn share(&self, level: f64) -> f64 {
        let (over, under) = if self.falling {
            (level, self.value)
        } else {
            (self.value, level)
        };
        if under > 0.0 {
            over / under
        } else {
            f64::INFINITY
        }
    }

    fn is_beyond(&self, level: Option<f64>) -> bool {
        level.is_some_and(|level| self.share(level) >= 1.0)
    }

    /// Whether it is far enough below this level that exceeding it again is reported.
    fn is_back(&self, level: Option<f64>) -> bool {
        level.is_none_or(|level| self.share(level) < BACK_BELOW)
    }

    /// How bad it is, to choose between processes.
    fn weight(&self) -> f64 {
        self.act
            .or(self.warn)
            .map_or(0.0, |level| self.share(level))
    }
}

impl State {
    fn weigh(&mut self, what: &Measure, measured: &Measured, now: Duration) -> Option<Kind> {
        let first = *self.first.get_or_insert((measured.value, now));
        let passed = |level: Option<f64>| Excess {
            pid: measured.pid,
            value: measured.value,
            level: level.unwrap_or_default(),
            wall: measured.wall,
            first: Some((first.0, now.saturating_sub(first.1))),
        };
        let is_urgent = measured.act.is_some() && passed(measured.act).is_urgent(what);
        let acts = self.has_held(measured, now) || is_urgent;
        if acts && self.told < ReportedLevel::Acted {
            self.told = ReportedLevel::Acted;
            return Some(Kind::Act(passed(measured.act)));
        }
        let warns = measured.is_beyond(measured.warn) || measured.is_beyond(measured.act);
        if warns && self.told == ReportedLevel::Nothing {
            self.told = ReportedLevel::Warned;
            return Some(Kind::Warn(passed(measured.warn.or(measured.act))));
        }
        if self.told == ReportedLevel::Acted && measured.is_back(measured.act) {
            self.told = ReportedLevel::Warned;
        }
        let level = measured.warn.or(measured.act);
        if self.told == ReportedLevel::Warned && measured.is_back(level) {
            self.told = ReportedLevel::Nothing;
            return Some(Kind::Cleared(passed(level)));
        }
        None
    }

    /// Whether the action level has been exceeded for long enough.
    fn has_held(&mut self, measured: &Measured, now: Duration) -> bool {
        if !measured.is_beyond(measured.act) {
            self.beyond = None;
            return false;
        }
        let (looks, since) = self
            .beyond
            .map_or((1, now), |(looks, since)| (looks + 1, since));
        self.beyond = Some((looks, since));
        let at_the_wall = measured
            .wall
            .is_some_and(|wall| measured.value >= wall * AT_THE_WALL);
        at_the_wall || (looks >= LOOKS && now.saturating_sub(since) >= HOLDS)
    }
}

/// The worst value of this budget, and why another could not be measured.
fn measure(budget: &Budget, reading: &ServiceReading) -> (Option<Measured>, Option<Gap>) {
    let plain = |value: f64, falling| Measured {
        pid: None,
        value,
        warn: absolute(budget.warn),
        act: absolute(budget.act),
        wall: None,
        falling,
    };
    let whole = |sight: &Observation<f64>, falling| match sight {
        Observation::Seen(value) => (Some(plain(*value, falling)), None),
        Observation::NotYet => (None, None),
        Observation::Hidden(gap) => (None, Some(gap.clone())),
    };
    match &budget.what {
        Measure::Fds => worst(reading, |process| of_count(budget, process)),
        Measure::Highest => worst(reading, |process| of_highest(budget, process)),
        Measure::Class(class) => worst(reading, |process| of_class(budget, class, process)),
        Measure::Growth => whole(&reading.growth, false),
        Measure::Wall => whole(&time_left(&reading.wall), true),
        Measure::Zombies => whole(&mapped(&reading.zombies, |count| as_f64(*count)), false),
        Measure::Memory => whole(&mapped(&reading.memory, |space| as_f64(space.bytes)), false),
        Measure::Children => whole(&Observation::Seen(as_f64(reading.children)), false),
    }
}

fn mapped<T, U>(sight: &Observation<T>, change: impl Fn(&T) -> U) -> Observation<U> {
    match sight {
        Observation::Seen(value) => Observation::Seen(change(value)),
        Observation::NotYet => Observation::NotYet,
        Observation::Hidden(gap) => Observation::Hidden(gap.clone()),
    }
}

/// A process that approaches no limit has unlimited time.
fn time_left(wall: &Observation<Option<super::LimitAhead>>) -> Observation<f64> {
    mapped(wall, |ahead| {
        ahead
            .as_ref()
            .map_or(f64::INFINITY, |wall| wall.left.as_secs_f64())
    })
}

type OfOne = Result<Option<Measured>, Gap>;

/// Each process has its own table and limit: the worst one counts.
fn worst(
    reading: &ServiceReading,
    of: impl Fn(&ProcessReading) -> OfOne,
) -> (Option<Measured>, Option<Gap>) {
    let (mut worst, mut gap) = (None::<Measured>, None);
    for process in &reading.processes {
        match of(process) {
            Ok(Some(found)) if worst.is_none_or(|other| found.weight() > other.weight()) => {
                worst = Some(found);
            }
            Ok(_) => {}
            Err(unseen) => gap = gap.or(Some(unseen)),
        }
    }
    (worst, gap)
}

fn of_count(budget: &Budget, process: &ProcessReading) -> OfOne {
    let count = match &process.count {
        Observation::Seen(count) => *count,
        Observation::NotYet => return Ok(None),
        Observation::Hidden(gap) => return Err(gap.clone()),
    };
    let needs_limit = [budget.warn, budget.act]
        .iter()
        .any(|level| matches!(level, Some(Amount::Percent(_))));
    let soft = process.limits.soft.map(as_f64);
    if needs_limit && soft.is_none() {
        return Err(Gap::new(
            format!("soft limit usage of process {}", process.pid),
            "the process has no soft limit, or it could not be read",
            "set the budget as a number: fds=3000:4000",
        ));
    }
    Ok(Some(beside(budget, process, as_f64(count), soft)))
}

fn of_highest(budget: &Budget, process: &ProcessReading) -> OfOne {
    // The default budget does not apply to programs that cannot call `select()` or where that is
    // unknown.
    if budget.only_select && process.selects != Some(true) {
        return Ok(None);
    }
    let value = match &process.highest {
        HighestFd::Is(value) | HighestFd::AtMost(value) => *value,
        HighestFd::NotAsked => return Ok(None),
        HighestFd::Hidden(gap) => return Err(gap.clone()),
    };
    let wall = Some(as_f64(FD_SETSIZE));
    Ok(Some(beside(budget, process, as_f64(value), wall)))
}

fn of_class(budget: &Budget, class: &ClassPattern, process: &ProcessReading) -> OfOne {
    match &process.classes {
        Observation::Seen(classes) => {
            let meant = classes.iter().filter(|(one, _)| class.matches(one));
            let count: u64 = meant.map(|(_, count)| count).sum();
            Ok(Some(beside(budget, process, as_f64(count), None)))
        }
        // Not examined, since there are too few of all classes together: then there are too few of
        // this one.
        Observation::NotYet => {
            let count = process.count.seen().copied().map(as_f64);
            let most = count.map(|count| beside(budget, process, count, None));
            Ok(most.filter(|most| most.is_back(most.warn) && most.is_back(most.act)))
        }
        Observation::Hidden(gap) => Err(gap.clone()),
    }
}

fn beside(budget: &Budget, process: &ProcessReading, value: f64, wall: Option<f64>) -> Measured {
    let level = |amount: Option<Amount>| match amount {
        Some(Amount::Percent(share)) => wall.map(|wall| wall * share / 100.0),
        other => absolute(other),
    };
    Measured {
        pid: Some(process.pid),
        value,
        warn: level(budget.warn),
        act: level(budget.act),
        wall,
        falling: false,
    }
}

/// A level that does not depend on a limit.
fn absolute(amount: Option<Amount>) -> Option<f64> {
    match amount? {
        Amount::Count(count) | Amount::Bytes(count) => Some(as_f64(count)),
        Amount::PerMinute(rate) => Some(rate),
        Amount::Time(time) => Some(time.as_secs_f64()),
        Amount::Percent(_) => None,
    }
}
