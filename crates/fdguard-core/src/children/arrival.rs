//! Whether children pile up: judged by the start times of those that were not waited for.
//!
//! Times are in seconds since the process began.

use std::time::Duration;

use crate::arrival_spread::ArrivalSpread;
use crate::count::as_f64;

/// Fewer children prove nothing; and this many parts of the time must contain a start.
pub const LEAST: usize = 8;
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
    let is_more = as_f64(left) >= MORE * as_f64(half) + MORE_LEAST;
    let is_spread = |spread: ArrivalSpread| {
        spread.is_wide(course.until) && spread.goes_on && spread.parts >= LEAST
    };
    is_more && ArrivalSpread::new(births, old).is_some_and(is_spread)
}

/// Nanoseconds as seconds.
#[must_use]
pub fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
