//! The time of day for the history, from a system clock that may be set. Pure: readings in, a time
//! out.
//!
//! A clock that is wrong for a while must not cost the history: rows that seem a year old would be
//! removed, and rows of next year would stay. So a jump is followed only when it has lasted.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fdguard_core::units::exact_seconds;
use jiff::{SignedDuration, Timestamp};

use crate::own_cost::time_awake_and_asleep;

/// Smaller steps are corrections of the clock, and followed at once.
const LEAST: SignedDuration = SignedDuration::from_secs(30);
/// A jump that lasts this long is believed.
const BELIEVED: Duration = Duration::from_secs(600);

/// The clocks of a machine. A test has its own.
pub(crate) trait HostClocks {
    /// Since any moment, without jumps.
    fn monotonic(&self) -> Duration;

    /// Since the machine started, its sleep included.
    fn awake_and_asleep(&self) -> Duration;

    /// What the system clock shows.
    fn time_of_day(&self) -> Timestamp;

    /// Waits for the next order, at most for this long.
    fn wait<T>(&mut self, orders: &Receiver<T>, most: Duration) -> Result<T, RecvTimeoutError>;
}

/// Those of this machine.
#[derive(Debug)]
pub(crate) struct SystemClocks {
    began: Instant,
}

impl Default for SystemClocks {
    fn default() -> Self {
        Self {
            began: Instant::now(),
        }
    }
}

impl HostClocks for SystemClocks {
    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }

    fn awake_and_asleep(&self) -> Duration {
        time_awake_and_asleep()
    }

    fn time_of_day(&self) -> Timestamp {
        Timestamp::now()
    }

    fn wait<T>(&mut self, orders: &Receiver<T>, most: Duration) -> Result<T, RecvTimeoutError> {
        orders.recv_timeout(most)
    }
}

/// A clock that does not jump until a jump has lasted.
#[derive(Debug, Default)]
pub(crate) struct HostClock {
    /// The latest answer, and when it was given.
    last: Option<(Duration, Timestamp)>,
    /// Since when the system clock shows another time, and how far it was off then.
    doubt: Option<(Duration, SignedDuration)>,
}

/// What the system clock did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockNews {
    /// It shows another time, which is not believed yet.
    Jumped(SignedDuration),
    /// It shows the expected time again.
    Returned,
    /// The other time has lasted and is used from now on.
    Believed(SignedDuration),
}

impl HostClock {
    /// The time of day. `now` counts from any moment, without jumps and through sleep of the
    /// machine; `system` is what the system clock shows.
    pub(crate) fn read(
        &mut self,
        now: Duration,
        system: Timestamp,
    ) -> (Timestamp, Option<ClockNews>) {
        let Some((then, last)) = self.last else {
            self.last = Some((now, system));
            return (system, None);
        };
        let passed = SignedDuration::try_from(now.saturating_sub(then)).unwrap_or_default();
        let expected = last.checked_add(passed).unwrap_or(last);
        let off = system.duration_since(expected);
        let (at, news) = if off.abs() < LEAST {
            let news = self.doubt.take().map(|_| ClockNews::Returned);
            // A correction backwards makes the time stand still, so that rows keep their order.
            (system.max(last), news)
        } else {
            self.doubt(now, expected, system, off)
        };
        self.last = Some((now, at));
        (at, news)
    }

    fn doubt(
        &mut self,
        now: Duration,
        expected: Timestamp,
        system: Timestamp,
        off: SignedDuration,
    ) -> (Timestamp, Option<ClockNews>) {
        match self.doubt {
            Some((since, first)) if (off - first).abs() < LEAST => {
                if now.saturating_sub(since) < BELIEVED {
                    return (expected, None);
                }
                self.doubt = None;
                (system, Some(ClockNews::Believed(off)))
            }
            // The first jump, or another one.
            _ => {
                self.doubt = Some((now, off));
                (expected, Some(ClockNews::Jumped(off)))
            }
        }
    }
}

impl ClockNews {
    /// The line of the log.
    pub(crate) fn event(self) -> fdguard_core::log_event::LogEvent {
        let line = fdguard_core::log_event::LogEvent::new;
        match self {
            Self::Jumped(off) => line("clock_jumped").with("seconds", off.as_secs_f64().round()),
            Self::Returned => line("clock_returned"),
            Self::Believed(off) => {
                line("clock_believed").with("seconds", off.as_secs_f64().round())
            }
        }
    }

    /// What the history has to say about it: a time that was set makes rows overlap, or leaves a
    /// hole.
    pub(crate) fn note(self) -> Option<String> {
        let Self::Believed(off) = self else {
            return None;
        };
        let way = if off.is_negative() { "back" } else { "forward" };
        let by = exact_seconds(Duration::from_secs(off.unsigned_abs().as_secs()));
        Some(format!(
            "the clock was set {way} by {by}: times before and after this differ by as much"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::{SignedDuration, Timestamp};
    use proptest::prelude::*;

    use super::{ClockNews, HostClock};

    const YEAR: i64 = 365 * 86_400;

    /// Reads every five seconds for this long, with the system clock off by so much.
    fn run(clock: &mut HostClock, from: u64, to: u64, off: i64) -> Vec<(i64, Option<ClockNews>)> {
        let steps = (from..to).step_by(5);
        steps
            .map(|second| {
                let system = start() + SignedDuration::from_secs(second as i64 + off);
                let (at, news) = clock.read(Duration::from_secs(second), system);
                ((at.as_second() - start().as_second()), news)
            })
            .collect()
    }

    fn start() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    #[test]
    fn a_jump_that_does_not_last_is_not_followed() {
        for off in [YEAR, -YEAR, 3600, -3600] {
            let mut clock = HostClock::default();
            run(&mut clock, 0, 100, 0);
            let during = run(&mut clock, 100, 600, off);
            let expected = Some(ClockNews::Jumped(SignedDuration::from_secs(off)));
            assert_eq!(during[0], (100, expected));
            assert_eq!(during.last(), Some(&(595, None)));
            let after = run(&mut clock, 600, 700, 0);
            assert_eq!(after[0], (600, Some(ClockNews::Returned)));
            assert_eq!(after.last(), Some(&(695, None)));
        }
    }

    #[test]
    fn a_jump_that_lasts_is_followed_once() {
        for off in [YEAR, -YEAR] {
            let mut clock = HostClock::default();
            run(&mut clock, 0, 100, 0);
            let all = run(&mut clock, 100, 2000, off);
            let news: Vec<ClockNews> = all.iter().filter_map(|(_, news)| *news).collect();
            let off = SignedDuration::from_secs(off);
            assert_eq!(news, [ClockNews::Jumped(off), ClockNews::Believed(off)]);
            assert_eq!(all.last(), Some(&(1995 + off.as_secs(), None)));
            let note = news[1].note().unwrap();
            assert!(note.contains("31536000 s"), "{note}");
        }
    }

    #[test]
    fn a_correction_is_followed_and_the_time_never_goes_back() {
        let mut clock = HostClock::default();
        run(&mut clock, 0, 100, 0);
        let back = run(&mut clock, 100, 200, -20);
        assert_eq!(back[0], (95, None));
        assert_eq!(back.last(), Some(&(175, None)));
        assert!(back.is_sorted_by_key(|(at, _)| *at));
    }

    proptest! {
        #[test]
        fn no_readings_panic(readings in proptest::collection::vec((any::<u64>(), any::<i64>()), 0..50)) {
            let mut clock = HostClock::default();
            for (now, system) in readings {
                let least = Timestamp::MIN.as_second();
                let system = system.rem_euclid(Timestamp::MAX.as_second() - least) + least;
                let system = Timestamp::from_second(system).unwrap();
                let _read = clock.read(Duration::from_secs(now), system);
            }
        }
    }
}
