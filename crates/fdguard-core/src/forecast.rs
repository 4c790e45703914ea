//! When a process reaches which limit at its current rate.

use serde::{Deserialize, Serialize};

use crate::count::as_f64;
use crate::finding::WallEta;
use crate::rising_group::RisingGroup;
use crate::select_use::SelectUse;
use crate::slope::Slope;
use crate::snapshot::Ceiling;
use crate::timeline::Timeline;
use crate::wall::FD_SETSIZE;
use crate::{Class, wall};

/// No process runs for longer than ten years, so a later time counts as never.
const FURTHEST: f64 = 10.0 * 365.25 * 86_400.0;

/// One limit: how close it is, and when it is reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Its name.
    pub name: String,
    /// Its value.
    pub at: u64,
    /// How much of it is used.
    pub used: Option<u64>,
    /// What is left.
    pub left: Option<u64>,
    /// Share that is used, in percent.
    pub percent: Option<f64>,
    /// How fast that grows; absent where it does not grow or is unknown.
    pub rate_per_min: Option<f64>,
    /// Seconds until it is reached at this rate; absent where usage does not grow.
    pub eta_seconds: Option<f64>,
    /// The earliest, by the range of the rate.
    pub soonest_seconds: Option<f64>,
    /// The latest; absent where the rate may be zero.
    pub latest_seconds: Option<f64>,
    /// The condition under which the limit applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_if: Option<String>,
}

impl Forecast {
    /// The short form for a finding.
    #[must_use]
    pub fn eta(&self) -> Option<WallEta> {
        Some(WallEta {
            name: self.name.clone(),
            eta_seconds: self.eta_seconds?,
            soonest_seconds: self.soonest_seconds?,
            latest_seconds: self.latest_seconds,
        })
    }
}

/// Every limit of a process, with the time until it is reached.
#[must_use]
pub fn forecasts(
    timeline: &Timeline,
    rising_groups: &[RisingGroup],
    select: Option<&SelectUse>,
) -> Vec<Forecast> {
    let limits = timeline.limits();
    let host = timeline.host();
    let count = timeline.count();
    let all = rate(rising_groups, |_| true);
    let of = |class: Class| {
        rate(rising_groups, |culprit| {
            culprit.class.as_ref() == Some(&class)
        })
    };
    let ceiling = |name, ceiling: Ceiling, rate| make(name, ceiling.at, ceiling.used, rate);
    [
        make("soft-limit", limits.soft, count, all),
        make("hard-limit", limits.hard, count, all),
        select_wall(timeline, all, select),
        ceiling("system-files", host.files, all),
        ceiling("ptys", host.ptys, of(Class::PtyMaster)),
        ceiling(
            "inotify-instances",
            host.inotify_instances,
            of(Class::Inotify),
        ),
        ceiling(
            "inotify-watches",
            host.inotify_watches,
            watches_rate(timeline),
        ),
        ceiling("tasks", host.tasks, children_rate(timeline)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The kernel assigns a number of 1024 or more only when all below are in use, so the free numbers
/// count, not the highest one.
fn select_wall(
    timeline: &Timeline,
    rate: Option<Slope>,
    select: Option<&SelectUse>,
) -> Option<Forecast> {
    if select == Some(&SelectUse::Absent) {
        return None;
    }
    let soft = timeline.limits().soft;
    let highest = timeline.highest().map_or(0, u64::from);
    // With a lower limit no number gets that high, unless the limit was lowered afterwards.
    let is_behind = soft.is_some_and(|soft| soft < FD_SETSIZE) && highest < FD_SETSIZE;
    if is_behind || !timeline.is_listed() {
        return None;
    }
    let below = timeline
        .live()
        .iter()
        .take_while(|(fd, _)| u64::from(*fd) < FD_SETSIZE)
        .count() as u64;
    let used = if highest >= FD_SETSIZE {
        FD_SETSIZE
    } else {
        below
    };
    make(wall::SELECT, Some(FD_SETSIZE), Some(used), rate)
}

/// The combined growth rate of all of these.
fn rate(rising_groups: &[RisingGroup], wanted: impl Fn(&RisingGroup) -> bool) -> Option<Slope> {
    let slopes = rising_groups.iter().filter(|one| wanted(one));
    slopes
        .filter_map(|culprit| culprit.slope)
        .reduce(|a, b| Slope {
            per_second: a.per_second + b.per_second,
            low: a.low + b.low,
            high: a.high + b.high,
        })
}

/// Children that are not waited for are tasks as well. Two counts give no range.
fn children_rate(timeline: &Timeline) -> Option<Slope> {
    let (first, last) = timeline.families()?;
    let watched = timeline.watched();
    steady(last.children.checked_sub(first.children)?, watched)
}

/// Watches are not descriptors: only their sum is read, from time to time.
fn watches_rate(timeline: &Timeline) -> Option<Slope> {
    let ((began, first), (now, last)) = timeline.inotify_watches()?;
    steady(last.checked_sub(first)?, now - began)
}

/// The rate of an increase; a small increase is not a trend.
fn steady(more: u64, seconds: f64) -> Option<Slope> {
    if more < 5 || seconds <= 0.0 {
        return None;
    }
    let per_second = as_f64(more) / seconds;
    Some(Slope {
        per_second,
        low: per_second,
        high: per_second,
    })
}

fn make(name: &str, at: Option<u64>, used: Option<u64>, rate: Option<Slope>) -> Option<Forecast> {
    let at = at?;
    let left = used.map(|used| at.saturating_sub(used));
    let rate = rate.filter(|rate| rate.per_second > 0.0);
    let after = |per_second: f64| {
        left.filter(|_| per_second > 0.0 && per_second.is_finite())
            .map(|left| as_f64(left) / per_second)
            .filter(|seconds| *seconds <= FURTHEST)
    };
    let eta = rate.and_then(|rate| after(rate.per_second));
    Some(Forecast {
        name: name.to_owned(),
        at,
        used,
        left,
        percent: used.and_then(|used| wall::percent(used, at)),
        rate_per_min: rate.map(|rate| rate.per_second * 60.0),
        eta_seconds: eta,
        soonest_seconds: eta.and_then(|eta| after(rate?.high).or(Some(eta))),
        latest_seconds: eta.and_then(|_| after(rate?.low)),
        only_if: wall::condition(name).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::{Forecast, forecasts, make};
    use crate::Class;
    use crate::judge::{Verdict, judge};
    use crate::rising_group::rising_groups;
    use crate::select_use::SelectUse;
    use crate::slope::Slope;
    use crate::testing::watch_script::{WatchScript, ceiling, selects, settings, watched};

    fn walls(told: &WatchScript) -> Vec<Forecast> {
        told.opinion(&settings()).walls
    }

    fn wall(told: &WatchScript, name: &str) -> Option<Forecast> {
        walls(told).into_iter().find(|wall| wall.name == name)
    }

    fn holding(count: usize, select: Option<SelectUse>) -> WatchScript {
        let mut told = watched(|t| {
            t.open(Class::Regular, "/srv/a", count);
            t.looks(8);
        });
        told.select = select;
        told
    }

    #[test]
    fn r13_the_time_to_the_limit_has_a_range() {
        let rate = Slope {
            per_second: 2.0,
            low: 1.0,
            high: 4.0,
        };
        let wall = make("soft-limit", Some(1000), Some(200), Some(rate)).unwrap();
        assert_eq!((wall.left, wall.percent), (Some(800), Some(20.0)));
        let times = [wall.eta_seconds, wall.soonest_seconds, wall.latest_seconds];
        assert_eq!(times, [Some(400.0), Some(200.0), Some(800.0)]);
        let maybe = Slope { low: -1.0, ..rate };
        let wall = make("soft-limit", Some(1000), Some(200), Some(maybe)).unwrap();
        assert_eq!(wall.latest_seconds, None);
        assert_eq!(wall.eta().unwrap().soonest_seconds, 200.0);
    }

    #[test]
    fn r13_a_drip_reaches_the_limit_when_it_says() {
        let told = watched(|t| {
            t.limits(500, 1000);
            t.drip(&Class::Pipe, "pipe:[7]", 100);
        });
        let soft = wall(&told, "soft-limit").unwrap();
        assert_eq!((soft.used, soft.eta_seconds), (Some(100), Some(400.0)));
        assert!(soft.soonest_seconds <= soft.eta_seconds);
        assert_eq!(wall(&told, "hard-limit").unwrap().eta_seconds, Some(900.0));
    }

    #[test]
    fn r13_a_wall_that_nothing_moves_towards_has_no_time() {
        let told = holding(10, None);
        assert!(walls(&told).iter().all(|wall| wall.eta_seconds.is_none()));
        assert!(make("x", None, Some(1), None).is_none());
        assert_eq!(make("x", Some(9), None, None).unwrap().left, None);
    }

    #[test]
    fn r9_a_ceiling_is_reached_by_its_own_class_only() {
        let told = watched(|t| {
            t.host(|host| {
                host.ptys = ceiling(900, 1000);
                host.inotify_instances = ceiling(100, 128);
                host.files = ceiling(1000, 100_000);
            });
            t.drip(&Class::PtyMaster, "/dev/ptmx", 80);
        });
        assert_eq!(wall(&told, "ptys").unwrap().eta_seconds, Some(100.0));
        assert_eq!(wall(&told, "inotify-instances").unwrap().eta_seconds, None);
        assert!(wall(&told, "system-files").unwrap().eta_seconds.is_some());
    }

    #[test]
    fn r9_watches_of_inotify_run_out_at_the_rate_of_their_sum() {
        let told = watched(|t| {
            for step in 0..11 {
                t.host(|host| host.inotify_watches = ceiling(1000 + 100 * step, 8000));
                t.looks(1);
            }
        });
        let wall = wall(&told, "inotify-watches").unwrap();
        assert_eq!((wall.used, wall.left), (Some(2000), Some(6000)));
        assert_eq!(wall.eta_seconds, Some(60.0));
    }

    #[test]
    fn r7_the_wall_of_select_is_absent_or_conditional() {
        assert_eq!(
            wall(&holding(10, Some(SelectUse::Absent)), "select-1024"),
            None
        );
        for unknown in [None, Some(SelectUse::unknown("no permission"))] {
            let wall = wall(&holding(10, unknown), "select-1024").unwrap();
            assert_eq!(wall.only_if.as_deref(), Some("if it calls select()"));
        }
        // Importing `select` shows only that a program could call it: every Python does.
        let wall = wall(&holding(10, Some(selects())), "select-1024").unwrap();
        assert_eq!(wall.only_if.as_deref(), Some("if it calls select()"));
        assert_eq!(wall.left, Some(1014));
    }

    #[test]
    fn r7_free_numbers_below_1024_count_and_not_the_highest() {
        let mut told = watched(|t| {
            t.open(Class::Regular, "/srv/a", 10);
            t.open_at(1023, Class::Regular, "/srv/a");
            t.looks(8);
        });
        told.select = Some(selects());
        assert_eq!(wall(&told, "select-1024").unwrap().left, Some(1013));
        let mut beyond = watched(|t| {
            t.open_at(2000, Class::Regular, "/srv/a");
            t.looks(8);
        });
        beyond.select = Some(selects());
        assert_eq!(wall(&beyond, "select-1024").unwrap().left, Some(0));
    }

    #[test]
    fn r7_behind_a_lower_limit_the_wall_is_out_of_reach_unless_it_was_crossed_before() {
        let below = |fd| {
            let mut told = watched(|t| {
                t.limits(256, 256);
                t.open_at(fd, Class::Regular, "/srv/a");
                t.looks(8);
            });
            told.select = Some(selects());
            wall(&told, "select-1024")
        };
        assert_eq!(below(100), None);
        assert_eq!(below(1500).unwrap().left, Some(0));
    }

    #[test]
    fn r13_what_rises_together_reaches_the_limit_together() {
        let told = watched(|t| {
            t.limits(1000, 1000);
            t.looks(1);
            for _ in 0..80 {
                t.open(Class::Pipe, "pipe:[7]", 3);
                t.open(Class::Pidfd, "pid 1", 1);
                t.looks(1);
            }
        });
        let timeline = told.timeline();
        let found = rising_groups(&timeline, &judge(&timeline), Verdict::Leaking);
        let soft = &forecasts(&timeline, &found, None)[0];
        assert_eq!(soft.rate_per_min, Some(240.0));
    }

    fn rate(per_second: f64) -> Option<Slope> {
        Some(Slope {
            per_second,
            low: per_second / 1e6,
            high: per_second,
        })
    }

    #[test]
    fn r13_a_wall_that_is_more_than_ten_years_away_is_not_on_the_way() {
        let hours = make("hard-limit", Some(10_100), Some(100), rate(1.0)).unwrap();
        assert_eq!(hours.eta_seconds, Some(10_000.0));
        assert_eq!(hours.latest_seconds, None, "it may take for ever");
        let ages = make("system-files", Some(u64::MAX), Some(100), rate(1.0)).unwrap();
        assert_eq!((ages.eta_seconds, ages.eta()), (None, None));
        assert_eq!((ages.soonest_seconds, ages.latest_seconds), (None, None));
        assert_eq!(ages.rate_per_min, Some(60.0), "it rises all the same");
    }
}
