//! What the times of a place tell: when what is left was opened, and what became of the rest.
//!
//! The injected library writes down every birth with its time, and of every end how old it was. So nothing here depends on how often
//! somebody looked, and a machine that is busy only makes the steps uneven. Times are in seconds since the process began. Decision 038.

use crate::count::as_f64;

/// Of those that a place closed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Closed {
    /// How many.
    pub count: u64,
    /// When they had been opened, on the average.
    pub born: f64,
    /// When the youngest of them had been opened.
    pub youngest: f64,
    /// For how long they were open, on the average.
    pub lived: f64,
    /// For how long the one was that was open the longest.
    pub longest: f64,
}

/// The way it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// What nobody closes any more came all the time, up to the end: a leak.
    Arrives,
    /// The oldest are closed as new ones come: a cache.
    Rolls,
    /// They came early, and then for a long time none: a pool that is full.
    Stopped,
    /// The times do not tell.
    Unclear,
}

/// Fewer tell nothing about when they came.
const LEAST: usize = 8;
/// Fewer do not tell that they stopped.
const LEAST_STOPPED: usize = 3;
/// They must have come in so many of the parts into which the time is cut: two bursts are not all the time.
const PARTS: usize = 30;
/// A place that closed fewer has no habit of closing; and where few are left, so many must have been closed.
const FEW_CLOSED: u64 = 2;
const HABIT: u64 = 8;
/// One in so many may be out of order: a file that is always in use is never the least recently used.
const STRAY: usize = 8;
/// A life that is so many times the usual one is that of an exception, as of what is open from the first to the last line.
const USUAL: f64 = 10.0;
/// Clocks and the order of threads: what is closed for a new one is closed a moment before or after.
const MOMENT: f64 = 0.05;
/// Of the whole time: a leak was at work for so much of it at least.
const SPREAD: f64 = 0.25;
/// Of the time in which they came: the silence after a leak, while a program winds up, and that after a pool is full.
const WINDING_UP: f64 = 1.0 / 3.0;
const FULL: f64 = 2.0 / 3.0;
/// Of the whole time: a silence that is shorter tells nothing.
const SILENCE: f64 = 0.2;
/// So many times as many early as late: they become less and less.
const FADING: usize = 3;

/// Judges a place by when those were opened that are left, the oldest first, in a process that lived so long.
pub(super) fn course(lived: f64, births: &[f64], closed: &Closed) -> Course {
    if rolls(births, closed) {
        return Course::Rolls;
    }
    let until = lived - in_use(births, closed);
    let old = births.partition_point(|birth| *birth < until);
    if arrives(until, &births[..old]) {
        Course::Arrives
    } else if has_stopped(lived, births) {
        Course::Stopped
    } else {
        Course::Unclear
    }
}

/// How old those are that may be in use: as those became that were closed, if it was while others came and not all in the end.
fn in_use(births: &[f64], closed: &Closed) -> f64 {
    let last = births.last().copied().unwrap_or(0.0).max(closed.youngest);
    let is_habit = closed.count >= HABIT && closed.born + closed.lived < last;
    if is_habit {
        closed.longest.min(USUAL * closed.lived)
    } else {
        0.0
    }
}

/// Whether those that are left are the youngest, and the others were closed while these came, at an age which none of these has reached.
fn rolls(births: &[f64], closed: &Closed) -> bool {
    let (all, many) = (births.len(), LEAST);
    let has_habit = closed.count >= HABIT || (closed.count >= FEW_CLOSED && all >= many);
    let Some(last) = births.last().filter(|_| has_habit) else {
        return false;
    };
    let count = |is: &dyn Fn(f64) -> bool| births.iter().filter(|birth| is(**birth)).count();
    let older = count(&|birth| birth < closed.born);
    // The latest of all that it opened, whatever became of it.
    let latest = last.max(closed.youngest);
    let too_old = count(&|birth| latest - birth > closed.longest + MOMENT.min(closed.longest));
    // What is closed for a new one is closed when that one comes; what is closed in the end is closed after all of them.
    let since = count(&|birth| birth > closed.born + closed.lived);
    let replaced = usize::try_from(closed.count).unwrap_or(all).min(all);
    older * STRAY <= all && too_old * STRAY <= all && since >= (replaced / 4).max(1)
}

/// Whether these came all over the time until then, and no less late than early.
fn arrives(until: f64, births: &[f64]) -> bool {
    let (Some(first), Some(last)) = (births.first(), births.last()) else {
        return false;
    };
    let (came, silent) = (last - first, until - last);
    let is_spread = came >= SPREAD * until && silent <= WINDING_UP * came;
    let early = births.partition_point(|birth| *birth < first + came / 2.0);
    let late = births.len() - early;
    is_spread && parts(births) >= LEAST && early <= FADING * late
}

/// In how many parts of the time from the first to the last of them some came.
fn parts(births: &[f64]) -> usize {
    let (Some(first), Some(last)) = (births.first(), births.last()) else {
        return 0;
    };
    let part = ((last - first) / as_f64(PARTS as u64)).max(f64::EPSILON);
    let mut parts = births
        .iter()
        .map(|birth| ((birth - first) / part).floor())
        .collect::<Vec<f64>>();
    // In order already, because the births are.
    parts.dedup();
    parts.len()
}

/// Whether none came for nearly as long as they had been coming.
fn has_stopped(lived: f64, births: &[f64]) -> bool {
    let (Some(first), Some(last)) = (births.first(), births.last()) else {
        return false;
    };
    let (came, silent) = (last - first, lived - last);
    births.len() >= LEAST_STOPPED && silent >= FULL * came && silent >= SILENCE * lived
}

#[cfg(test)]
#[path = "births_tests.rs"]
mod tests;
