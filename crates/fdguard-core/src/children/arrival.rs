//! Whether children pile up: judged by the start times of those that were not waited for.
//!
//! It asks the same questions as for descriptors, in a small separate function. Times are in
//! seconds since the process began.

use std::time::Duration;

use crate::count::as_f64;

/// Fewer children prove nothing.
pub const LEAST: usize = 8;
/// The time from the first start to the last is cut into this many parts; at least [`LEAST`] of
/// them must contain a start.
const PARTS: f64 = 30.0;
/// Starts must cover at least this share of the whole time.
const SPREAD: f64 = 0.25;
/// As a share of the time in which they were started: a program that then worked longer without
/// starting one has all that it needs.
const SILENCE: f64 = 1.0 / 3.0;
/// If this many times as many started early as late, they are workers started at the beginning.
const FADING: usize = 3;
/// A program that waited for fewer has no habit of waiting.
const HABIT: u64 = 2;
/// A life this many times longer than usual is an exception.
const USUAL: f64 = 10.0;
/// The present number must exceed this many times the highest of the first half, and by
/// `MORE_LEAST`: a worker more or less proves nothing.
const MORE: f64 = 1.25;
const MORE_LEAST: f64 = 2.0;

/// The lifetimes of children that have ended.
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

/// What is known about the children of one call path.
#[derive(Clone, Copy, Debug)]
pub struct ChildHistory<'a> {
    /// When the process was last active.
    pub until: f64,
    /// Start times of those left, oldest first.
    pub births: &'a [f64],
    /// The others.
    pub ended: EndedLives,
}

/// Whether a call path keeps starting children without waiting for them. `half` is their highest
/// number in the first half of the time, `left` the present number.
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

/// The number of parts of this time in which children started.
fn parts(births: &[f64], first: f64, came: f64) -> usize {
    let part = (came / PARTS).max(f64::EPSILON);
    let mut parts: Vec<f64> = births
        .iter()
        .map(|birth| ((birth - first) / part).floor())
        .collect();
    // Already in order, because the births are.
    parts.dedup();
    parts.len()
}

/// Nanoseconds as seconds.
#[must_use]
pub fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
