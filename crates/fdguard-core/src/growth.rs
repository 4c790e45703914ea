//! How much each process has grown since the watch began: two numbers and a time per process, not a
//! history. `watch` gives a verdict (drip, warm-up, saw-tooth); this only shows which processes
//! deserve one.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use fdguard_proc::ProcKey;

use crate::count::{as_f64, difference};
use crate::host::{HostRow, HostView};

/// Two looks closer than this give no rate: one descriptor in 50 ms is not 1200 a minute.
const LEAST_FOR_RATE: Duration = Duration::from_secs(1);

/// A shorter watch gives no time left: a forecast of hours from a second of watching is a guess,
/// and every newly started program grows.
const LEAST_FOR_FORECAST: Duration = Duration::from_secs(10);

/// The growth of every visible process since it was first seen.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    series: HashMap<ProcKey, Series>,
}

/// The growth of one process. Exists only after two looks that both read the count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessGrowth {
    /// How long it has been watched.
    pub since: Duration,
    /// The change in that time.
    pub delta: i64,
    /// The same per minute; absent while the looks are too close together.
    pub per_minute: Option<f64>,
}

/// The samples kept for one process.
#[derive(Clone, Copy, Debug)]
struct Series {
    first: Sample,
    /// The latest look; absent after a single look, or if the latest count could not be read.
    latest: Option<Sample>,
    /// When the count last rose above everything seen before.
    highest: Sample,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    count: u64,
}

impl Growth {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in one look. `now` is the time since the watch began, by the monotonic clock:
    /// wall-clock time jumps after a suspend, and would change the rate.
    pub fn observe(&mut self, now: Duration, view: &HostView) {
        let present: HashSet<ProcKey> = view.rows.iter().filter_map(HostRow::key).collect();
        // Bounded by the running processes: a host that starts a thousand processes a minute must
        // not make the watcher grow.
        self.series.retain(|key, _| present.contains(key));
        for row in &view.rows {
            if let Some(key) = row.key() {
                self.note(key, now, row.count);
            }
        }
    }

    fn note(&mut self, key: ProcKey, now: Duration, count: Option<u64>) {
        let sample = count.map(|count| Sample { at: now, count });
        match (self.series.get_mut(&key), sample) {
            (Some(series), _) => {
                series.latest = sample;
                if let Some(sample) = sample.filter(|now| now.count > series.highest.count) {
                    series.highest = sample;
                }
            }
            (None, Some(first)) => {
                let series = Series {
                    first,
                    latest: None,
                    highest: first,
                };
                self.series.insert(key, series);
            }
            (None, None) => {}
        }
    }

    /// How much a process has grown; absent after a single look, or where the latest look could
    /// not read the count.
    #[must_use]
    pub fn get(&self, key: &ProcKey) -> Option<ProcessGrowth> {
        self.series.get(key)?.grown()
    }

    /// The growth of the process in this row.
    #[must_use]
    pub fn of_row(&self, row: &HostRow) -> Option<ProcessGrowth> {
        self.get(&row.key()?)
    }

    /// How long until the process reaches its nearest limit at this rate. Absent when it does not
    /// grow, stopped growing, or was watched too briefly.
    #[must_use]
    pub fn time_left(&self, row: &HostRow) -> Option<Duration> {
        let series = self.series.get(&row.key()?)?;
        let grown = series.grown()?;
        if grown.since < LEAST_FOR_FORECAST || series.has_levelled_off() {
            return None;
        }
        let rate = grown.per_minute.filter(|rate| *rate > 0.0)?;
        let left = as_f64(row.nearest_wall()?.left);
        Duration::try_from_secs_f64(left / rate * 60.0).ok()
    }

    /// How many processes are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether nothing was seen yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }
}

impl Series {
    fn grown(&self) -> Option<ProcessGrowth> {
        let latest = self.latest?;
        let since = latest.at.saturating_sub(self.first.at);
        let delta = difference(self.first.count, latest.count);
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts of descriptors are far below 2^52"
        )]
        let per_minute =
            (since >= LEAST_FOR_RATE).then(|| delta as f64 / since.as_secs_f64() * 60.0);
        Some(ProcessGrowth {
            since,
            delta,
            per_minute,
        })
    }

    /// A warm-up leaves an average rate behind that would predict exhaustion forever. A process
    /// that has set no new maximum for more than half of the watch is not approaching a limit.
    fn has_levelled_off(&self) -> bool {
        self.latest.is_some_and(|latest| {
            let watched = latest.at.saturating_sub(self.first.at);
            latest.at.saturating_sub(self.highest.at) > watched / 2
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Growth, ProcessGrowth};
    use crate::host::{HostRow, HostView};
    use crate::snapshot::Limits;

    fn row(pid: u32, start_ticks: u64, count: Option<u64>) -> HostRow {
        HostRow {
            pid,
            start_ticks: Some(start_ticks),
            count,
            limits: Limits {
                soft: Some(1024),
                hard: Some(4096),
            },
            ..HostRow::default()
        }
    }

    /// One process, seen with these counts at these seconds.
    fn watched(looks: &[(u64, Option<u64>)]) -> (Growth, HostRow) {
        let mut growth = Growth::new();
        for (at, count) in looks {
            growth.observe(Duration::from_secs(*at), &view(vec![row(7, 1, *count)]));
        }
        let last = looks.last().and_then(|look| look.1);
        (growth, row(7, 1, last))
    }

    fn view(rows: Vec<HostRow>) -> HostView {
        HostView {
            rows,
            ..HostView::default()
        }
    }

    #[test]
    fn one_look_says_nothing_about_growth() {
        let (growth, row) = watched(&[(0, Some(100))]);
        assert_eq!(growth.of_row(&row), None);
        assert_eq!(growth.time_left(&row), None);
    }

    #[test]
    fn two_looks_give_a_difference_and_a_rate() {
        let (growth, row) = watched(&[(0, Some(100)), (180, Some(112))]);
        let expected = ProcessGrowth {
            since: Duration::from_secs(180),
            delta: 12,
            per_minute: Some(4.0),
        };
        assert_eq!(growth.of_row(&row), Some(expected));
        // 1024 − 112 = 912 left, at 4 a minute.
        assert_eq!(growth.time_left(&row), Some(Duration::from_secs(228 * 60)));
    }

    #[test]
    fn two_looks_in_one_instant_give_no_rate() {
        let (growth, row) = watched(&[(5, Some(1)), (5, Some(9))]);
        let grown = growth.of_row(&row).unwrap();
        assert_eq!((grown.delta, grown.per_minute), (8, None));
    }

    #[test]
    fn a_short_watch_gives_a_rate_but_no_forecast() {
        let (growth, row) = watched(&[(0, Some(10)), (2, Some(12))]);
        assert_eq!(growth.of_row(&row).unwrap().per_minute, Some(60.0));
        assert_eq!(growth.time_left(&row), None);
    }

    #[test]
    fn what_shrinks_or_stands_still_has_no_time_left() {
        for end in [50, 100] {
            let (growth, row) = watched(&[(0, Some(100)), (60, Some(end))]);
            assert_eq!(growth.time_left(&row), None, "{end}");
        }
        let (growth, row) = watched(&[(0, Some(100)), (60, Some(50))]);
        assert_eq!(growth.of_row(&row).unwrap().delta, -50);
    }

    #[test]
    fn a_warm_up_that_levelled_off_is_not_on_its_way_to_a_wall() {
        let (growth, row) = watched(&[(0, Some(10)), (20, Some(500)), (60, Some(500))]);
        assert_eq!(growth.of_row(&row).unwrap().delta, 490);
        assert_eq!(growth.time_left(&row), None);
        let (growth, row) = watched(&[(0, Some(10)), (20, Some(500)), (60, Some(501))]);
        assert!(growth.time_left(&row).is_some());
    }

    #[test]
    fn a_reused_number_is_a_new_series() {
        let mut growth = Growth::new();
        growth.observe(Duration::ZERO, &view(vec![row(7, 1, Some(900))]));
        growth.observe(Duration::from_secs(60), &view(vec![row(7, 2, Some(3))]));
        assert_eq!(growth.of_row(&row(7, 1, None)), None);
        assert_eq!(growth.of_row(&row(7, 2, None)), None);
        growth.observe(Duration::from_secs(120), &view(vec![row(7, 2, Some(4))]));
        assert_eq!(growth.of_row(&row(7, 2, None)).unwrap().delta, 1);
        assert_eq!(growth.len(), 1);
    }

    #[test]
    fn a_process_that_vanished_is_forgotten() {
        let mut growth = Growth::new();
        growth.observe(
            Duration::ZERO,
            &view(vec![row(7, 1, Some(1)), row(8, 1, Some(1))]),
        );
        growth.observe(Duration::from_secs(1), &view(vec![row(8, 1, Some(1))]));
        assert_eq!(growth.of_row(&row(7, 1, None)), None);
        assert_eq!(growth.len(), 1);
        growth.observe(Duration::from_secs(2), &view(Vec::new()));
        assert!(growth.is_empty());
    }

    #[test]
    fn a_count_that_cannot_be_read_is_unknown_growth_and_not_none() {
        let (growth, row) = watched(&[(0, Some(10)), (30, Some(20)), (60, None)]);
        assert_eq!(growth.of_row(&row), None);
        let (growth, row) = watched(&[(0, Some(10)), (30, None), (60, Some(20))]);
        assert_eq!(growth.of_row(&row).unwrap().delta, 10);
        let (growth, row) = watched(&[(0, None), (30, Some(20))]);
        assert_eq!(growth.of_row(&row), None);
    }

    #[test]
    fn a_process_without_a_start_time_is_not_followed() {
        let mut growth = Growth::new();
        let mut nameless = row(7, 1, Some(1));
        nameless.start_ticks = None;
        growth.observe(Duration::ZERO, &view(vec![nameless.clone()]));
        growth.observe(Duration::from_secs(60), &view(vec![nameless.clone()]));
        assert_eq!(growth.of_row(&nameless), None);
    }

    #[test]
    fn at_the_wall_no_time_is_left() {
        let (growth, row) = watched(&[(0, Some(10)), (60, Some(1024))]);
        assert_eq!(growth.time_left(&row), Some(Duration::ZERO));
    }
}
