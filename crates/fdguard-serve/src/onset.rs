//! When did it begin, and after what? Pure: samples and events in, an answer out.
//!
//! A service that is restarted when it is full leaks in every run. So the answer looks at the runs
//! between restarts, finds the first of the unbroken row of runs that grew up to now, and in that
//! run the last moment before the growth.

use jiff::Timestamp;
use serde::Serialize;

use crate::history_record::{HistoryEvent, HistorySample};

/// A run that gained fewer descriptors did not grow.
const LEAST: u64 = 8;
/// Nor did one that gained less than this share of its level.
const LEAST_SHARE: f64 = 0.25;
/// The growth has begun when this share of it is there.
const BEGUN: f64 = 0.05;
/// An event this many seconds after the begin still counts as its cause: samples are minutes apart.
const SLACK: f64 = 120.0;

/// The beginning of growth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Onset {
    /// The last sample before the growth.
    pub began_at: Timestamp,
    /// The level then.
    pub from: u64,
    /// The highest level since.
    pub to: u64,
    /// Descriptors per hour in the latest run.
    pub per_hour: Option<f64>,
    /// The last restart or deploy before it; absent if none was seen.
    pub after: Option<HistoryEvent>,
    /// How many runs in a row grew, the present one included.
    pub runs: u64,
    /// Whether an earlier run is known that did not grow: then the growth is new.
    pub was_steady_before: bool,
    /// In words.
    pub text: String,
}

/// Finds the beginning of the latest growth; `None` if the latest run did not grow.
#[must_use]
pub fn find(samples: &[HistorySample], events: &[HistoryEvent]) -> Option<Onset> {
    let restarts = starts(events);
    let runs = split(samples, &restarts);
    let growths: Vec<Option<Growth>> = runs.iter().map(|run| Growth::of(run)).collect();
    let first = growths
        .iter()
        .rposition(Option::is_none)
        .map_or(0, |at| at + 1);
    let row: Vec<&Growth> = growths.get(first..)?.iter().flatten().collect();
    let (begin, latest) = (row.first()?, row.last()?);
    let began = begin.began_at;
    let latest_start = |event: &&&HistoryEvent| {
        let late = event.at.duration_since(began).as_secs_f64();
        late <= SLACK
    };
    let after = restarts
        .iter()
        .rev()
        .find(latest_start)
        .map(|event| (*event).clone());
    let to = row
        .iter()
        .map(|growth| growth.to)
        .max()
        .unwrap_or(latest.to);
    let runs = row.len() as u64;
    Some(Onset {
        began_at: began,
        from: begin.from,
        to,
        per_hour: latest.per_hour,
        was_steady_before: first > 0,
        text: words(begin, to, after.as_ref(), runs, first > 0),
        after,
        runs,
    })
}

/// The events with which new processes began to run. A service that appears although it did not
/// stop runs on: it is fdguard serve that was started again.
fn starts(events: &[HistoryEvent]) -> Vec<&HistoryEvent> {
    let mut is_running = false;
    let mut starts = Vec::new();
    for event in events {
        match event.event.as_str() {
            "restarted" => starts.push(event),
            "appeared" if !is_running => starts.push(event),
            "stopped" => {
                is_running = false;
                continue;
            }
            "appeared" => {}
            _ => continue,
        }
        is_running = true;
    }
    starts
}

/// The runs between restarts, without empty ones.
fn split<'a>(
    samples: &'a [HistorySample],
    restarts: &[&HistoryEvent],
) -> Vec<Vec<&'a HistorySample>> {
    let mut runs: Vec<Vec<&HistorySample>> = vec![Vec::new()];
    let mut restarts = restarts.iter().peekable();
    for sample in samples {
        while restarts.next_if(|event| event.at <= sample.at).is_some() {
            runs.push(Vec::new());
        }
        if sample.open_fds.is_some()
            && let Some(run) = runs.last_mut()
        {
            run.push(sample);
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// The growth of one run.
#[derive(Clone, Debug)]
struct Growth {
    began_at: Timestamp,
    from: u64,
    to: u64,
    per_hour: Option<f64>,
}

impl Growth {
    /// Judged on what stays: the level from which the rest of the run never returns.
    fn of(run: &[&HistorySample]) -> Option<Self> {
        let counts: Vec<u64> = run.iter().filter_map(|sample| sample.open_fds).collect();
        // At each sample the lowest level from there on.
        let mut floor = counts.clone();
        for at in (0..floor.len().saturating_sub(1)).rev() {
            floor[at] = floor[at].min(floor[at + 1]);
        }
        let (from, to) = (*floor.first()?, *floor.last()?);
        let gained = to - from;
        if gained < LEAST || (gained as f64) < from as f64 * LEAST_SHARE {
            return None;
        }
        let begun = from as f64 + gained as f64 * BEGUN;
        let at = floor.iter().rposition(|level| (*level as f64) <= begun)?;
        let hours = run.last()?.at.duration_since(run[at].at).as_secs_f64() / 3600.0;
        Some(Self {
            began_at: run[at].at,
            from,
            to: counts.iter().copied().max()?,
            per_hour: (hours > 0.0).then(|| gained as f64 / hours),
        })
    }
}

fn words(
    begin: &Growth,
    to: u64,
    after: Option<&HistoryEvent>,
    runs: u64,
    was_steady: bool,
) -> String {
    let mut text = format!(
        "Growth began at {}, from {} to {to} descriptors.",
        begin.began_at.strftime("%Y-%m-%d %H:%M:%SZ"),
        begin.from
    );
    match after {
        Some(event) => {
            let what = match (event.event.as_str(), event.deploy) {
                (_, Some(true)) => "a restart with a new program (deploy)",
                ("appeared", _) => "the service was first seen",
                _ => "a restart with the same program",
            };
            let time = event.at.strftime("%Y-%m-%d %H:%M:%SZ");
            text.push_str(&format!(" The last change before it: {what} at {time}."));
        }
        None => text.push_str(" No restart is known before it."),
    }
    if runs > 1 {
        text.push_str(&format!(" It grew in {runs} runs in a row."));
    }
    if was_steady {
        text.push_str(" The run before did not grow.");
    }
    text
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use proptest::prelude::*;

    use super::find;
    use crate::history_record::{HistoryEvent, HistorySample};

    fn minute(minute: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
    }

    fn sample(at: i64, count: u64) -> HistorySample {
        HistorySample {
            at: minute(at),
            processes: 1,
            open_fds: Some(count),
            limit: Some(1024),
            usage_ratio: None,
            verdict: "unknown".to_owned(),
            classes: None,
            targets: None,
        }
    }

    fn start(at: i64, event: &str, deploy: Option<bool>) -> HistoryEvent {
        HistoryEvent {
            at: minute(at),
            event: event.to_owned(),
            text: String::new(),
            deploy,
            finding: None,
        }
    }

    #[test]
    fn growth_after_a_deploy_names_the_deploy() {
        let mut samples: Vec<_> = (0..60).map(|at| sample(at, 20)).collect();
        samples.extend((60..120).map(|at| sample(at, 20 + u64::try_from(at - 60).unwrap() * 3)));
        let events = [
            start(0, "appeared", None),
            start(60, "restarted", Some(true)),
        ];
        let onset = find(&samples, &events).unwrap();
        assert_eq!(onset.after, Some(events[1].clone()));
        assert!(onset.was_steady_before && onset.runs == 1);
        assert_eq!((onset.from, onset.to), (20, 197));
        assert!(
            (60..64).contains(&(onset.began_at.as_second() / 60)),
            "{onset:?}"
        );
        assert!(onset.text.contains("deploy"), "{}", onset.text);
        assert!(
            onset
                .per_hour
                .is_some_and(|rate| (150.0..200.0).contains(&rate))
        );
    }

    #[test]
    fn a_leak_that_fills_run_after_run_began_with_the_first_of_them() {
        let mut samples: Vec<_> = (0..60).map(|at| sample(at, 20)).collect();
        for run in 1..5 {
            let grow = |at: i64| 20 + u64::try_from(at).unwrap() * 10;
            samples.extend((0..60).map(|at| sample(run * 60 + at, grow(at))));
        }
        let mut events = vec![
            start(0, "appeared", None),
            start(60, "restarted", Some(true)),
        ];
        events.extend((2..5).map(|run| start(run * 60, "restarted", Some(false))));
        let onset = find(&samples, &events).unwrap();
        assert_eq!((onset.runs, onset.was_steady_before), (4, true));
        assert_eq!(onset.after.unwrap().at, minute(60));
    }

    #[test]
    fn a_start_of_fdguard_serve_begins_no_run() {
        let samples: Vec<_> = (0..120)
            .map(|at| sample(at, 20 + u64::try_from(at).unwrap() * 3))
            .collect();
        let mut events = vec![start(0, "appeared", None), start(60, "appeared", None)];
        let onset = find(&samples, &events).unwrap();
        assert_eq!(onset.runs, 1);
        assert_eq!(onset.after.unwrap().at, minute(0));
        // But after it stopped, it does.
        events.insert(1, start(59, "stopped", None));
        assert_eq!(find(&samples, &events).unwrap().runs, 2);
    }

    #[test]
    fn growth_in_the_middle_of_a_run_begins_there() {
        let mut samples: Vec<_> = (0..100).map(|at| sample(at, 50)).collect();
        samples.extend((100..200).map(|at| sample(at, 50 + u64::try_from(at - 100).unwrap())));
        let onset = find(&samples, &[start(0, "appeared", None)]).unwrap();
        let began = onset.began_at.as_second() / 60;
        assert!((100..107).contains(&began), "{began}");
        assert!(!onset.was_steady_before);
    }

    #[test]
    fn bursts_that_return_and_small_changes_are_not_growth() {
        let saw: Vec<_> = (0..200)
            .map(|at| sample(at, 20 + u64::try_from(at % 20).unwrap() * 30))
            .chain([sample(200, 20)])
            .collect();
        assert_eq!(find(&saw, &[]), None);
        let small: Vec<_> = (0..200)
            .map(|at| sample(at, 1000 + u64::try_from(at).unwrap()))
            .collect();
        assert_eq!(find(&small, &[]), None);
        assert_eq!(find(&[], &[]), None);
    }

    proptest! {
        #[test]
        fn any_history_is_survived(
            counts in prop::collection::vec(prop::option::of(0_u64..5000), 0..80),
            starts in prop::collection::vec(0_i64..80, 0..6),
        ) {
            let mut starts = starts;
            starts.sort_unstable();
            let samples: Vec<_> = counts
                .iter()
                .zip(0_i64..)
                .map(|(count, at)| HistorySample { open_fds: *count, ..sample(at, 0) })
                .collect();
            let events: Vec<_> = starts.iter().map(|at| start(*at, "restarted", None)).collect();
            if let Some(onset) = find(&samples, &events) {
                prop_assert!(onset.to >= onset.from);
                prop_assert!(samples.iter().any(|sample| sample.at == onset.began_at));
            }
        }
    }
}
