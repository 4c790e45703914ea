//! Which series were pushed before and have ended. Pure.
//!
//! A scraper notices that a series is absent from a page. A receiver of pushes cannot, and shows
//! the last value for another five minutes: a finding that is resolved, a service that is gone. It
//! needs a marker for the end.

use std::collections::{BTreeMap, HashMap};

use fdguard_core::workload::Workload;

use crate::metric_sink::MetricSeries;
use crate::overview::Overview;

/// Seconds for which an end is repeated, in case a push is lost. After more than five minutes the
/// receiver takes a series without values for ended anyway.
const REPEATED: f64 = 330.0;

/// What a service is known by elsewhere, by kind and name.
pub(crate) type Workloads = BTreeMap<(String, String), Workload>;

/// What was pushed.
#[derive(Debug, Default)]
pub(crate) struct PushedSeries {
    last: Vec<MetricSeries>,
    /// Without values, and since when. The oldest first.
    ended: Vec<(f64, MetricSeries)>,
    workloads: Workloads,
}

impl PushedSeries {
    /// The next push: these series, and the ends of others; of ends as many as `most`.
    pub(crate) fn next(
        &mut self,
        series: Vec<MetricSeries>,
        overview: &Overview,
        now: f64,
        most: usize,
    ) -> Vec<MetricSeries> {
        let present: HashMap<_, _> = series.iter().map(|one| (one.identity(), ())).collect();
        let is_absent = |one: &MetricSeries| !present.contains_key(&one.identity());
        self.ended
            .retain(|(since, one)| now - since < REPEATED && is_absent(one));
        let vanished = self.last.drain(..).filter(|one| is_absent(one));
        self.ended.extend(vanished.map(|one| {
            let ended = MetricSeries { value: None, ..one };
            (now, ended)
        }));
        let beyond = self.ended.len().saturating_sub(most);
        self.ended.drain(..beyond);
        self.remember_workloads(overview);
        self.last.clone_from(&series);
        let ended = self.ended.iter().map(|(_, one)| one.clone());
        series.into_iter().chain(ended).collect()
    }

    /// Those of services that are there, or that ended a short time ago.
    fn remember_workloads(&mut self, overview: &Overview) {
        let ended = &self.ended;
        self.workloads.retain(|(kind, service), _| {
            let is_it = |one: &MetricSeries| {
                one.label("kind") == kind.as_str() && one.label("service") == service.as_str()
            };
            ended.iter().any(|(_, one)| is_it(one))
        });
        for view in &overview.services {
            let key = || (view.key.kind.word().to_owned(), view.key.name.clone());
            let workload = view.workload.clone();
            self.workloads
                .extend(workload.map(|workload| (key(), workload)));
        }
    }

    /// The containers and pods of the services of the last push.
    pub(crate) fn workloads(&self) -> &Workloads {
        &self.workloads
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{PushedSeries, REPEATED};
    use crate::metric_sink::MetricSeries;
    use crate::overview::Overview;

    fn series(service: &str) -> MetricSeries {
        MetricSeries {
            name: "fdguard_findings",
            help: "",
            is_counter: false,
            labels: vec![("service", service.to_owned())],
            value: Some(1.0),
        }
    }

    /// Pushes series of these services; what the receiver gets, `-` before those that end.
    fn push(pushed: &mut PushedSeries, services: &str, now: f64) -> String {
        let overview = Overview::empty("h".to_owned(), 5.0, Timestamp::UNIX_EPOCH);
        let all = services.split_whitespace().map(series).collect();
        let sent = pushed.next(all, &overview, now, 3);
        let words = sent.iter().map(|one| {
            let sign = if one.value.is_none() { "-" } else { "" };
            format!("{sign}{}", one.label("service"))
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_end_is_repeated_until_the_receiver_forgets_the_series() {
        let mut pushed = PushedSeries::default();
        assert_eq!(push(&mut pushed, "a b", 0.0), "a b");
        assert_eq!(push(&mut pushed, "b", 15.0), "b -a");
        assert_eq!(push(&mut pushed, "b", 30.0), "b -a");
        assert_eq!(push(&mut pushed, "b", 15.0 + REPEATED), "b");
    }

    #[test]
    fn a_series_that_is_back_has_no_end() {
        let mut pushed = PushedSeries::default();
        push(&mut pushed, "a b", 0.0);
        push(&mut pushed, "b", 15.0);
        assert_eq!(push(&mut pushed, "a b", 30.0), "a b");
        assert_eq!(push(&mut pushed, "a", 45.0), "a -b");
    }

    #[test]
    fn of_many_ends_the_newest_are_told() {
        let mut pushed = PushedSeries::default();
        push(&mut pushed, "a b c d", 0.0);
        assert_eq!(push(&mut pushed, "d", 15.0), "d -a -b -c");
        assert_eq!(push(&mut pushed, "", 30.0), "-b -c -d");
    }
}
