//! When to look next: rarely at rest, often near a level or while a value rises fast.

use std::time::Duration;

use fdguard_core::Pid;
use fdguard_core::count::as_f64;

/// Between two looks when nothing happens.
pub const AT_REST: Duration = Duration::from_secs(1);
/// Near a level, and while a program starts.
const NEAR: Duration = Duration::from_millis(250);
/// Never more often.
const AT_MOST: Duration = Duration::from_millis(50);
/// A program that started this recently may do anything.
const YOUNG: Duration = Duration::from_secs(5);
/// A level is near from this share on.
const CLOSE_TO: f64 = 0.9;
/// At the current rate, this many looks must happen before the level is reached.
const LOOKS_LEFT: f64 = 8.0;

/// One measurement of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) pid: Pid,
    pub(super) value: u64,
}

/// Remembers the last look, to compute how fast values rise.
#[derive(Debug, Default)]
pub(super) struct Pace {
    at: Duration,
    last: Vec<Point>,
    /// Rise per second of each at the last look: one quiet look does not end a fast rise.
    rates: Vec<(Pid, f64)>,
}

impl Pace {
    /// How long to wait after this look. `levels` are those of each process, ascending;
    /// `since_start` is the known age of the program.
    pub(super) fn after(
        &mut self,
        now: Duration,
        since_start: Duration,
        points: &[Point],
        levels: impl Fn(Pid) -> Vec<f64>,
    ) -> Duration {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        let mut pause = if since_start < YOUNG { NEAR } else { AT_REST };
        let mut rates = Vec::with_capacity(points.len());
        for point in points {
            let before = self.last.iter().find(|last| last.pid == point.pid);
            let rise = before.map_or(0, |last| point.value.saturating_sub(last.value));
            let fresh = if passed > 0.0 {
                as_f64(rise) / passed
            } else {
                0.0
            };
            rates.push((point.pid, fresh));
            let known = self.rates.iter().find(|(pid, _)| *pid == point.pid);
            let rate = known.map_or(fresh, |(_, old)| fresh.max(*old));
            pause = pause.min(until_next(as_f64(point.value), rate, &levels(point.pid)));
        }
        (self.at, self.rates) = (now, rates);
        self.last = points.to_vec();
        pause
    }
}

/// For the nearest level above.
fn until_next(value: f64, rate: f64, levels: &[f64]) -> Duration {
    let Some(next) = levels.iter().find(|level| **level > value) else {
        return AT_REST;
    };
    let near = if value >= next * CLOSE_TO {
        NEAR
    } else {
        AT_REST
    };
    if rate <= 0.0 {
        return near;
    }
    let soon = Duration::try_from_secs_f64((next - value) / rate / LOOKS_LEFT);
    soon.map_or(near, |soon| soon.clamp(AT_MOST, near))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{AT_REST, NEAR, Pace, Point};

    const OLD: Duration = Duration::from_secs(3600);

    fn levels(limit: f64) -> Vec<f64> {
        vec![limit * 0.7, limit * 0.9, limit * 0.98, limit]
    }

    #[test]
    fn nothing_happens_once_a_second() {
        let mut pace = Pace::default();
        for second in 0..10 {
            let point = Point { pid: 1, value: 20 };
            let pause = pace.after(Duration::from_secs(second), OLD, &[point], |_| {
                levels(1024.0)
            });
            assert_eq!(pause, AT_REST);
        }
        let near = Point { pid: 1, value: 700 };
        let pause = pace.after(Duration::from_secs(3600), OLD, &[near], |_| levels(1024.0));
        assert_eq!(pause, NEAR);
    }

    /// Looks taken between the action level and the limit, for any start of the looks.
    fn looks_in_time(rate: f64, limit: f64, young: bool, phase: f64) -> usize {
        let mut pace = Pace::default();
        let (mut now, mut seen) = (phase, 0);
        loop {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "small"
            )]
            let value = (10.0 + rate * now) as u64;
            if value as f64 >= limit {
                return seen;
            }
            seen += usize::from(value as f64 >= limit * 0.9);
            let at = Duration::from_secs_f64(now);
            let age = if young { at } else { OLD };
            let point = Point { pid: 1, value };
            now += pace
                .after(at, age, &[point], |_| levels(limit))
                .as_secs_f64();
        }
    }

    #[test]
    fn r29_fifty_a_second_are_caught_before_a_wall_of_256() {
        for step in 0..40 {
            let phase = f64::from(step) / 40.0;
            for young in [true, false] {
                let looks = looks_in_time(50.0, 256.0, young, phase);
                assert!(looks >= 2, "{looks} looks from {phase}, young: {young}");
            }
            assert!(looks_in_time(500.0, 4096.0, false, phase) >= 2);
            assert!(looks_in_time(2.0, 256.0, false, phase) >= 2);
        }
    }

    #[test]
    fn beyond_the_last_level_there_is_no_hurry() {
        let mut pace = Pace::default();
        let point = Point { pid: 1, value: 300 };
        let pause = pace.after(Duration::from_secs(1), OLD, &[point], |_| levels(256.0));
        assert_eq!(pause, AT_REST);
    }
}
