//! Whether the program leaks, as judged by core, and when it reaches which limit.

use std::time::Duration;

use fdguard_core::Timeline;
use fdguard_core::forecast::{Forecast, forecasts};
use fdguard_core::judge::{LEAST_LOOKS, Verdict, judge};
use fdguard_core::rising_group::{RisingGroup, rising_groups};
use fdguard_core::snapshot::Limits;
use fdguard_core::timeline::Look;

use super::cost::Cost;
use crate::budget::{LimitAhead, Observation};

/// Judging may take this share of the time: one in two thousand,
const SHARE: u32 = 2000;
/// and more often than this adds nothing.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// The counts of one process over time. This needs no list; it uses the memory of a few thousand
/// numbers, however long it runs.
#[derive(Debug, Default)]
pub(super) struct Trend {
    counts: Timeline,
    judged: Option<JudgedTrend>,
    next: Duration,
}

/// The last verdict.
#[derive(Clone, Debug)]
struct JudgedTrend {
    per_minute: f64,
    wall: Option<LimitAhead>,
    at: Duration,
}

impl Trend {
    pub(super) fn observe(&mut self, now: Duration, count: Option<u64>, limits: Limits) {
        self.counts.observe(&Look {
            at: now.as_secs_f64(),
            count,
            limits: Some(limits),
            ..Look::default()
        });
    }

    /// Judges if it is time, by the lists if there are enough of them.
    pub(super) fn judge(&mut self, now: Duration, listed: Option<&Timeline>) {
        let enough = |timeline: &&Timeline| timeline.looks() >= LEAST_LOOKS as u64;
        if now < self.next || !enough(&&self.counts) {
            return;
        }
        let cost = Cost::start();
        let timeline = listed.filter(enough).unwrap_or(&self.counts);
        let leaking = leaking(timeline);
        let per_second =
            |one: &RisingGroup| one.slope.map_or(0.0, |slope| slope.per_second.max(0.0));
        self.judged = Some(JudgedTrend {
            per_minute: leaking.iter().map(per_second).sum::<f64>() * 60.0,
            wall: nearest(&forecasts(timeline, &leaking, None)),
            at: now,
        });
        self.next = now + (cost.spent() * SHARE).max(AT_MOST_EVERY);
    }

    pub(super) fn growth(&self) -> Observation<f64> {
        let judged = self.judged.as_ref();
        judged.map_or(Observation::NotYet, |judged| {
            Observation::Seen(judged.per_minute)
        })
    }

    /// The limit gets closer from one judgement to the next.
    pub(super) fn wall(&self, now: Duration) -> Observation<Option<LimitAhead>> {
        let Some(judged) = &self.judged else {
            return Observation::NotYet;
        };
        let passed = now.saturating_sub(judged.at);
        let wall = judged.wall.clone().map(|wall| LimitAhead {
            left: wall.left.saturating_sub(passed),
            ..wall
        });
        Observation::Seen(wall)
    }
}

/// What leaks, according to this timeline.
pub(super) fn leaking(timeline: &Timeline) -> Vec<RisingGroup> {
    rising_groups(timeline, &judge(timeline), Verdict::Leaking)
}

/// The hard limit does not matter behind the soft one; a conditional limit has its own budget.
fn nearest(walls: &[Forecast]) -> Option<LimitAhead> {
    let ahead = walls.iter().filter(|wall| wall.only_if.is_none());
    let ahead = ahead.filter_map(|wall| Some((wall.eta_seconds?, wall)));
    let (seconds, wall) = ahead.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(LimitAhead {
        name: wall.name.clone(),
        left: Duration::try_from_secs_f64(seconds).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fdguard_core::snapshot::Limits;

    use super::Trend;
    use crate::budget::Observation;

    const LIMITS: Limits = Limits {
        soft: Some(1024),
        hard: Some(4096),
    };

    fn watched(count: impl Fn(u64) -> u64, seconds: u64) -> Trend {
        let mut trend = Trend::default();
        for second in 0..seconds {
            let now = Duration::from_secs(second);
            trend.observe(now, Some(count(second)), LIMITS);
            trend.next = Duration::ZERO;
            trend.judge(now, None);
        }
        trend
    }

    #[test]
    fn before_there_is_enough_to_judge_nothing_is_said() {
        assert_eq!(
            watched(|second| 10 + second, 20).growth(),
            Observation::NotYet
        );
    }

    #[test]
    fn r13_a_steady_rise_has_a_rate_and_a_time_left() {
        let trend = watched(|second| 20 + second, 120);
        let Observation::Seen(rate) = trend.growth() else {
            panic!("{trend:?}")
        };
        assert!((50.0..70.0).contains(&rate), "{rate}");
        let Observation::Seen(Some(wall)) = trend.wall(Duration::from_secs(119)) else {
            panic!("{trend:?}")
        };
        assert_eq!(wall.name, "soft-limit");
        let left = wall.left.as_secs();
        assert!((700..1100).contains(&left), "{left} s until 1024");
        let later = trend.wall(Duration::from_secs(219));
        let Observation::Seen(Some(later)) = later else {
            panic!("{later:?}")
        };
        assert_eq!((wall.left - later.left).as_secs(), 100);
    }

    #[test]
    fn who_stands_still_or_goes_to_and_fro_is_on_the_way_to_no_wall() {
        for trend in [
            watched(|_| 500, 120),
            watched(|second| 500 + second % 7, 120),
        ] {
            assert_eq!(trend.growth(), Observation::Seen(0.0));
            assert_eq!(
                trend.wall(Duration::from_secs(119)),
                Observation::Seen(None)
            );
        }
    }
}
