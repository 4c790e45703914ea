//! The time of a watch: the monotonic clock, and changes of the other clocks meanwhile.

use std::time::{Duration, SystemTime};

use fdguard_core::Gap;
use fdguard_core::units::duration;
use rustix::time::{ClockId, clock_gettime};

/// Smaller differences are inaccuracies of the clocks.
const TOLERANCE: f64 = 2.0;

/// Three readings at one moment, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    /// Monotonic time, without suspension.
    pub(super) running: f64,
    /// The same including suspension.
    pub(super) passed: f64,
    /// The time of day.
    pub(super) wall: f64,
}

impl Reading {
    pub(super) fn now() -> Self {
        let seconds = |clock| {
            let time = clock_gettime(clock);
            Duration::new(
                time.tv_sec.unsigned_abs(),
                u32::try_from(time.tv_nsec).unwrap_or(0),
            )
            .as_secs_f64()
        };
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            running: seconds(ClockId::Monotonic),
            passed: seconds(ClockId::Boottime),
            wall: wall.unwrap_or_default().as_secs_f64(),
        }
    }

    /// Reports suspension and clock changes between two readings.
    pub(super) fn gap_since(&self, before: &Self) -> Option<Gap> {
        let slept = (self.passed - before.passed) - (self.running - before.running);
        let set = (self.wall - before.wall) - (self.passed - before.passed);
        if slept > TOLERANCE {
            return Some(Gap::new(
                format!("{} while the machine was suspended", duration(slept)),
                "nothing runs on a suspended machine",
                "none needed: rates exclude the time of suspension",
            ));
        }
        (set.abs() > TOLERANCE).then(|| {
            let way = if set > 0.0 { "ahead" } else { "back" };
            Gap::new(
                format!(
                    "the clock was set {way} by {} during the watch",
                    duration(set.abs())
                ),
                "a user or a time service set the clock",
                "none needed: rates use the monotonic clock; the start and end times do not match",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Reading;

    fn at(running: f64, passed: f64, wall: f64) -> Reading {
        Reading {
            running,
            passed,
            wall,
        }
    }

    #[test]
    fn an_ordinary_second_is_no_gap() {
        let before = at(10.0, 10.0, 1e9);
        assert_eq!(at(11.0, 11.0, 1e9 + 1.001).gap_since(&before), None);
    }

    #[test]
    fn sleep_and_a_set_clock_are_told_apart() {
        let before = at(10.0, 10.0, 1e9);
        let slept = at(11.0, 3611.0, 1e9 + 3601.0).gap_since(&before).unwrap();
        assert!(
            slept
                .what
                .starts_with("60 min while the machine was suspended"),
            "{slept:?}"
        );
        let set = at(11.0, 11.0, 1e9 - 3599.0).gap_since(&before).unwrap();
        assert!(set.what.contains("set back by 60 min"), "{set:?}");
    }
}
