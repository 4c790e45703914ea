//! Whether children pile up: judged by the start times of those that were not waited for.
//!
//! The same questions as for descriptors, in a small function of its own. Times are in seconds
//! since the process began.

use std::time::Duration;

use crate::count::as_f64;

/// Fewer children prove nothing.
pub const LEAST: usize = 8;
/// They must have come in so many of the parts into which the time from the first to the last is
/// cut.
const PARTS: f64 = 30.0;
/// Of the whole time: they came for so much of it at least.
const SPREAD: f64 = 0.25;
/// Of the time in which they came: a program that worked on for longer without one more has all
/// that it wants.
const SILENCE: f64 = 1.0 / 3.0;
/// So many times as many early as late: workers that are started at the beginning.
const FADING: usize = 3;
/// A program that waited for fewer has no habit of waiting.
const HABIT: u64 = 2;
/// A life this many times longer than usual is an exception.
const USUAL: f64 = 10.0;
/// So much more than in the first half is more; a worker more or less is not.
const MORE: f64 = 1.25;
const MORE_LEAST: f64 = 2.0;

/// The lives of children that are no longer there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EndedLives {
    count: u64,
    lived: f64,
    longest: f64,
}

impl EndedLives {
    /// One that lived for this many nanoseconds.
    pub fn add(&mut self, lived: u64) {
        let lived = seconds(lived);
        self.count += 1;
        self.lived += lived;
        self.longest = self.longest.max(lived);
    }

    /// The age up to which a child may still be waited for.
    fn in_use(&self) -> f64 {
        if self.count < HABIT {
            return 0.0;
        }
        self.longest.min(USUAL * self.lived / as_f64(self.count))
    }
}

/// What is known of the children of one call path.
#[derive(Clone, Copy, Debug)]
pub struct ChildHistory<'a> {
    /// When the process was last seen at work.
    pub until: f64,
    /// When those were started that are left, the oldest first.
    pub births: &'a [f64],
    /// The others.
    pub ended: EndedLives,
}

/// Whether a call path keeps starting children that are not waited for. `half` is the highest
/// number that there was of them in the first half of the time, `left` how many there are.
#[must_use]
pub fn piles_up(course: &ChildHistory<'_>, half: u64, left: u64) -> bool {
    let old = course.until - course.ended.in_use();
    let known = course.births.partition_point(|birth| *birth <= old);
    let births = &course.births[..known];
    let (Some(first), Some(last)) = (births.first(), births.last()) else {
        return false;
    };
    let (came, silent) = (last - first, old - last);
    let early = births.partition_point(|birth| *birth < first + came / 2.0);
    let late = births.len() - early;
    let is_more = as_f64(left) >= MORE * as_f64(half) + MORE_LEAST;
    is_more
        && came >= SPREAD * course.until
        && silent <= SILENCE * came
        && early <= FADING * late
        && parts(births, *first, came) >= LEAST
}

/// In how many parts of this time some came.
fn parts(births: &[f64], first: f64, came: f64) -> usize {
    let part = (came / PARTS).max(f64::EPSILON);
    let mut parts: Vec<f64> = births
        .iter()
        .map(|birth| ((birth - first) / part).floor())
        .collect();
    // In order already, because the births are.
    parts.dedup();
    parts.len()
}

/// Nanoseconds as seconds.
#[must_use]
pub fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
