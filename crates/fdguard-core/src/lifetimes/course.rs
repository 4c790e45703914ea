//! The course of a call path: does what it opens stay open, is it replaced, or did it stop
//! arriving?
//!
//! Shares of time are shares of active time, so that an idle minute changes nothing. Times are in
//! seconds since the process began. Decisions 038 and 051.

use super::history::{Lifetime, Moment, PathHistory};
use crate::arrival_spread::ArrivalSpread;
use crate::count::as_f64;

/// What became of the descriptors that a path closed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClosedStats {
    /// How many.
    pub count: u64,
    /// When they were opened, on average.
    pub born: f64,
    /// When the youngest of them was opened.
    pub youngest: f64,
    /// How long they were open, on average.
    pub lived: f64,
    /// How long the longest was open.
    pub longest: f64,
}

impl ClosedStats {
    /// Counts one more close.
    pub fn count(&mut self, one: &Lifetime) {
        let closed = one.closed.map_or(one.opened.real, |closed| closed.real);
        self.add(&Self {
            count: 1,
            born: one.opened.real,
            youngest: one.opened.real,
            lived: closed - one.opened.real,
            longest: closed - one.opened.real,
        });
    }

    /// This many were opened and closed before this moment, at unknown times.
    pub(super) fn count_many(&mut self, count: u64, before: Moment) {
        self.add(&Self {
            count,
            born: before.real,
            youngest: before.real,
            lived: 0.0,
            longest: 0.0,
        });
    }

    /// Both together.
    pub fn add(&mut self, other: &Self) {
        let all = as_f64(self.count + other.count);
        if all > 0.0 {
            let share = as_f64(other.count) / all;
            self.born += (other.born - self.born) * share;
            self.lived += (other.lived - self.lived) * share;
        }
        self.count += other.count;
        self.youngest = self.youngest.max(other.youngest);
        self.longest = self.longest.max(other.longest);
    }
}

/// Its course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathCourse {
    /// Descriptors that stay open arrive all the time, up to the end: a leak.
    Arrives,
    /// Others are closed as new ones arrive: a cache, or a pool that renews what it holds.
    Rolls,
    /// They arrived early, and then none for a long time: a pool that is full.
    Stopped,
    /// Many arrived at once, and none before or after.
    Burst,
    /// The times do not decide it.
    Unclear,
}

/// The judgement of one history.
#[derive(Clone, Debug, PartialEq)]
pub struct PathJudgement {
    /// Its course.
    pub course: PathCourse,
    /// What was open when the path opened its last one, or when the end began; the oldest first.
    /// Those released at the end have the time of their close.
    pub survivors: Vec<Lifetime>,
    /// Whether the survivors were released in one final sweep.
    pub is_released: bool,
}

/// Fewer show no pattern in time.
pub const LEAST: usize = 8;
/// Fewer cannot show that they stopped.
const LEAST_STOPPED: usize = 3;
/// Arrivals must fall into at least this many parts of the time: two bursts are not continuous.
const LEAST_PARTS: usize = 6;
/// A path that closed fewer has no habit of closing; and where few are left, this many must have
/// been closed.
const FEW_CLOSED: u64 = 2;
const HABIT: u64 = 8;
/// One in this many may be out of order: a file that is always in use is never the least recently
/// used.
const STRAY: usize = 8;
/// A life this many times the usual one is an exception, such as a descriptor that is open from the
/// first line to the last.
const USUAL: f64 = 10.0;
/// Where descriptors were renewed more often than this while their number was level, they come and
/// go.
const GENERATIONS: u64 = 4;
/// Tolerance for clocks and the order of threads: a descriptor that makes room for a new one is
/// closed a moment before or after.
const MOMENT: f64 = 0.05;
/// With this many arrivals over `LONG` seconds, they may cover a smaller share of the time.
const MANY: usize = 24;
const LONG: f64 = 3.0;
/// Seconds: arrivals within less are one burst, as when a pool is created.
const BURST: f64 = 1.0;
/// Seconds: descriptors that are all released at the end must have grown for longer, because a job
/// that opens all its files and then closes them is one piece of work.
const RELEASED: f64 = 4.0;
/// The silence after a pool is full, as a share of the time in which it was filled.
const FULL: f64 = 2.0 / 3.0;
/// As a share of the whole time: a shorter silence means nothing.
const SILENCE: f64 = 0.2;
/// A sweep takes at most this share of the time in which its descriptors were opened.
const SWEEP: f64 = 1.0 / 3.0;
/// The process does little after the final sweep: this share of its active time, or
/// `AFTERWARDS_SECONDS`.
const AFTERWARDS: f64 = 0.1;
const AFTERWARDS_SECONDS: f64 = 1.0;

/// Judges a history.
#[must_use]
pub fn judge(history: &PathHistory) -> PathJudgement {
    let history = &without_usual_closes(history);
    let sweep = final_sweep(history);
    let is_released = sweep != Sweep::None;
    let mut closed = history.past;
    let mut survivors = history.live.clone();
    if is_released {
        survivors.extend(&history.recent);
        survivors.sort_by(|a, b| a.opened.real.total_cmp(&b.opened.real));
    } else {
        for one in &history.recent {
            closed.count(one);
        }
    }
    let births: Vec<Moment> = survivors.iter().map(|one| one.opened).collect();
    let course = course(history, &births, &closed, sweep);
    PathJudgement {
        course,
        survivors,
        is_released,
    }
}

/// The history with a shorter list of recent closes: the path closes most of what it opens, and
/// what it closed as soon as usual before the others is not part of a final sweep.
fn without_usual_closes(history: &PathHistory) -> PathHistory {
    let mut history = history.clone();
    let usual = history.past.longest.min(USUAL * history.past.lived);
    let close = |one: &Lifetime| one.closed.map_or(f64::INFINITY, |closed| closed.real);
    let is_old = |one: &&Lifetime| close(one) - one.opened.real > usual;
    let old = history.recent.iter().filter(is_old).map(close);
    let Some(begin) = old.reduce(f64::min) else {
        return history;
    };
    if history.past.count >= HABIT {
        let (swept, closed): (Vec<_>, Vec<_>) = history
            .recent
            .iter()
            .partition(|one| is_old(one) || close(one) >= begin);
        for one in &closed {
            history.past.count(one);
        }
        history.recent = swept;
    }
    history
}

/// How the open descriptors were closed at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sweep {
    /// They were not, or only as usual.
    None,
    /// The program closed them, shortly before its end.
    ByProgram,
    /// The exit itself did: an interpreter that cleans up, or a program's reaction to a termination
    /// signal.
    ByEnd,
}

/// Whether what was closed since the last open was closed because the program ended: most of what
/// was open, in far less time than it took to open, with little activity afterwards.
fn final_sweep(history: &PathHistory) -> Sweep {
    let swept = history.recent.len();
    if swept < 2 || swept < history.live.len() {
        return Sweep::None;
    }
    let ends = history.recent.iter().filter_map(|one| one.closed);
    let (mut first, mut last) = (f64::INFINITY, Moment::default());
    for end in ends {
        first = first.min(end.real);
        last = if end.real > last.real { end } else { last };
    }
    // An interpreter may take its time: finalizers run code.
    let finalized = history.recent.iter().filter(|one| one.is_finalized).count();
    let is_after_end = history.is_ending && first >= history.until.real;
    if is_after_end || finalized * 2 > swept {
        return Sweep::ByEnd;
    }
    let oldest = history.recent.first().map_or(0.0, |one| one.opened.real);
    let came = history.last_open.real - oldest;
    let rest = history.until.active - last.active;
    let is_last = rest <= (AFTERWARDS * history.until.active).max(AFTERWARDS_SECONDS);
    if last.real - first <= SWEEP * came && is_last {
        Sweep::ByProgram
    } else {
        Sweep::None
    }
}

fn course(
    history: &PathHistory,
    births: &[Moment],
    closed: &ClosedStats,
    sweep: Sweep,
) -> PathCourse {
    if rolls(births, closed) || is_level(history) {
        return PathCourse::Rolls;
    }
    let is_released = sweep != Sweep::None;
    if has_stopped(history, births, is_released) {
        return PathCourse::Stopped;
    }
    // Released descriptors are judged as they were when the path opened its last one.
    let (until, old) = if is_released {
        (history.last_open.active, births.len())
    } else {
        let latest = history.until.real - in_use(births, closed);
        let old = births.partition_point(|birth| birth.real < latest);
        let young = births.get(old).map(|birth| birth.active);
        (young.unwrap_or(history.until.active), old)
    };
    let least = if sweep == Sweep::ByProgram {
        RELEASED
    } else {
        BURST
    };
    if arrives(until, &births[..old], least) {
        PathCourse::Arrives
    } else if is_burst(births) {
        PathCourse::Burst
    } else {
        PathCourse::Unclear
    }
}

/// The age up to which descriptors may still be in use: the age of those that were closed, if they
/// were closed while others arrived and not all at the end.
fn in_use(births: &[Moment], closed: &ClosedStats) -> f64 {
    let last = births.last().map_or(0.0, |birth| birth.real);
    let last = last.max(closed.youngest);
    let is_habit = closed.count >= HABIT && closed.born + closed.lived < last;
    if is_habit {
        closed.longest.min(USUAL * closed.lived)
    } else {
        0.0
    }
}

/// Whether those left are the youngest, and the others were closed while these arrived, at an age
/// which none of these has reached.
fn rolls(births: &[Moment], closed: &ClosedStats) -> bool {
    let (all, many) = (births.len(), LEAST);
    let has_habit = closed.count >= HABIT || (closed.count >= FEW_CLOSED && all >= many);
    let Some(last) = births.last().filter(|_| has_habit) else {
        return false;
    };
    let count = |is: &dyn Fn(f64) -> bool| births.iter().filter(|birth| is(birth.real)).count();
    let older = count(&|birth| birth < closed.born);
    // The latest of all that it opened, open or not.
    let latest = last.real.max(closed.youngest);
    let too_old = count(&|birth| latest - birth > closed.longest + MOMENT.min(closed.longest));
    // A descriptor that makes room for a new one is closed when that one arrives; one that is
    // closed at the end is closed after all of them.
    let since = count(&|birth| birth > closed.born + closed.lived);
    let replaced = usize::try_from(closed.count).unwrap_or(all).min(all);
    older * STRAY <= all && too_old * STRAY <= all && since >= (replaced / 4).max(1)
}

/// Whether as many were closed as were opened for nearly as long as the path took to rise to its
/// height: a pool that renews what it holds, in any order. Where descriptors come and go quickly, a
/// level number hides a slow leak, and their ages do not.
fn is_level(history: &PathHistory) -> bool {
    let level = history.level;
    let (first, last) = (history.first_open, history.last_open);
    let has_lasted = |first: f64, since: f64, last: f64| {
        last - since >= FULL * (since - first) && last - since >= SILENCE * last
    };
    let real = has_lasted(first.real, level.since.real, last.real);
    let active = has_lasted(first.active, level.since.active, last.active);
    let least = (LEAST as u64).max(level.highest / 4);
    let is_slow = (least..=GENERATIONS * level.highest).contains(&level.opened);
    is_slow && real && active && 4 * level.lowest >= 3 * level.highest
}

/// Whether what this path holds replaced what another one had opened before it, so that the line
/// that creates a pool and the line that renews it together hold no more.
#[must_use]
pub fn is_renewal(path: &PathHistory, before: &PathHistory) -> bool {
    let births: Vec<f64> = path.live.iter().map(|one| one.opened.real).collect();
    let (Some(first), Some(last)) = (births.first(), births.last()) else {
        return false;
    };
    let mut closed = before.past;
    before.recent.iter().for_each(|one| closed.count(one));
    let (held, gone) = (births.len() as u64, closed.count);
    let mean = births.iter().sum::<f64>() / as_f64(held);
    let is_in_step = (closed.born + closed.lived - mean).abs() <= (last - first) / 8.0;
    let is_earlier = before.call == path.call && before.last_open.real <= first + MOMENT;
    is_earlier && is_in_step && gone >= LEAST as u64 && held <= gone + (held / 8).max(1)
}

/// Whether these arrived throughout the active time until then, without fading.
fn arrives(until: f64, births: &[Moment], least: f64) -> bool {
    let active: Vec<f64> = births.iter().map(|birth| birth.active).collect();
    let (Some(first), Some(last)) = (births.first(), births.last()) else {
        return false;
    };
    let seconds = last.real - first.real;
    let is_much = births.len() >= MANY && seconds >= LONG;
    let is_spread = |spread: ArrivalSpread| {
        (spread.is_wide(until) || is_much) && spread.goes_on && spread.parts >= LEAST_PARTS
    };
    seconds >= least
        && births.len() >= LEAST
        && ArrivalSpread::new(&active, until).is_some_and(is_spread)
}

/// Whether none arrived for nearly as long as they had been arriving, while the process did other
/// things or kept using these. Where uses are not recorded, it is taken to have used them: a pool
/// that is full and a leak that paused look the same there.
fn has_stopped(history: &PathHistory, births: &[Moment], is_released: bool) -> bool {
    let (Some(first), Some(last)) = (births.first(), births.last()) else {
        return false;
    };
    // Released descriptors: the process may have continued for long before that.
    let swept = history.recent.iter().filter_map(|one| one.closed);
    let end = match swept.min_by(|a, b| a.real.total_cmp(&b.real)) {
        Some(first_close) if is_released => first_close,
        _ => history.until,
    };
    let (came, silent) = (last.real - first.real, end.real - last.real);
    let (came_active, silent_active) = (last.active - first.active, end.active - last.active);
    let is_in_use = history.is_use_unknown || history.used_late * 4 >= births.len();
    let is_silent = silent >= FULL * came && silent >= SILENCE * end.real;
    let is_level = silent_active >= (FULL * came_active).max(SILENCE * end.active) || is_in_use;
    births.len() >= LEAST_STOPPED && is_silent && is_level
}

/// Whether all arrived within a moment.
fn is_burst(births: &[Moment]) -> bool {
    match (births.first(), births.last()) {
        (Some(first), Some(last)) => {
            births.len() >= LEAST_STOPPED && last.real - first.real < BURST
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "course_tests.rs"]
mod tests;
