//! What goes into the history, and when: a sample when something changed, and now and then one when
//! nothing did.

use std::collections::HashMap;

use fdguard_core::{Pid, Text};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::overview::{ClassTally, Overview, ServiceView, TargetTally};
use crate::service::ServiceKey;

/// Seconds after which an unchanged service is written again.
const HEARTBEAT: f64 = 900.0;

/// One service at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistorySample {
    /// When.
    pub at: Timestamp,
    /// Its processes.
    pub processes: u64,
    /// Its descriptors; absent where unknown.
    pub open_fds: Option<u64>,
    /// The soft limit of the process nearest to its own.
    pub limit: Option<u64>,
    /// The share of it in use.
    pub usage_ratio: Option<f64>,
    /// The verdict.
    pub verdict: String,
    /// Classes of its watched processes.
    pub classes: Option<Vec<ClassTally>>,
    /// Targets of its watched processes. Written with the sample and read one moment at a time
    /// ([`crate::read_moment`]), because all of them would be too many for one document.
    #[serde(skip)]
    pub targets: Option<Vec<TargetTally>>,
}

/// Something that happened to a service.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryEvent {
    /// When.
    pub at: Timestamp,
    /// `appeared`, `restarted`, `stopped`, `opened`, `updated`, `reopened`, `resolved`,
    /// `suppressed`.
    pub event: String,
    /// In words.
    pub text: String,
    /// Whether the program was replaced; absent where that is unknown or not asked.
    pub deploy: Option<bool>,
    /// The rule and the class, for findings.
    pub finding: Option<FindingNote>,
}

/// What an event says about a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingNote {
    /// Its number.
    pub id: u64,
    /// The rule.
    pub rule: String,
    /// The severity.
    pub severity: String,
    /// The class.
    pub class: Option<String>,
    /// The target.
    pub target: Option<String>,
    /// The process; absent in what older versions wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// Its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<Text>,
    /// How many descriptors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// When it was first seen: it is reported when that is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<Timestamp>,
}

/// What one tick adds.
#[derive(Clone, Debug, Default)]
pub struct HistoryBatch {
    /// Samples.
    pub samples: Vec<(ServiceKey, HistorySample)>,
    /// Events.
    pub events: Vec<(ServiceKey, HistoryEvent)>,
}

impl HistoryBatch {
    /// Rows that it writes.
    #[must_use]
    pub fn rows(&self) -> u64 {
        (self.samples.len() + self.events.len()) as u64
    }
}

/// Decides which samples are written.
#[derive(Debug)]
pub(crate) struct SampleFilter {
    every: f64,
    last: HashMap<ServiceKey, (f64, Option<u64>, u64)>,
}

impl SampleFilter {
    /// At most one sample of a service in this many seconds.
    pub(crate) fn new(every: f64) -> Self {
        Self {
            every,
            last: HashMap::new(),
        }
    }

    /// The samples of this tick.
    pub(crate) fn samples(
        &mut self,
        overview: &Overview,
        now: f64,
    ) -> Vec<(ServiceKey, HistorySample)> {
        let running = overview.services.iter().filter(|view| view.processes > 0);
        let running: Vec<&ServiceView> = running.collect();
        let due = running.iter().filter(|view| self.is_due(view, now));
        let due: Vec<&&ServiceView> = due.collect();
        for view in &due {
            let seen = (now, view.open_fds, view.processes);
            self.last.insert(view.key.clone(), seen);
        }
        if self.last.len() > 2 * running.len() + 64 {
            self.last
                .retain(|_, (at, _, _)| now - *at < 2.0 * HEARTBEAT);
        }
        let at = overview.taken_at;
        due.into_iter()
            .map(|view| (view.key.clone(), sample(view, at)))
            .collect()
    }

    fn is_due(&self, view: &ServiceView, now: f64) -> bool {
        let Some((at, count, processes)) = self.last.get(&view.key) else {
            return true;
        };
        let has_changed = *count != view.open_fds || *processes != view.processes;
        let passed = now - at;
        passed >= HEARTBEAT || (has_changed && passed >= self.every)
    }
}

fn sample(view: &ServiceView, at: Timestamp) -> HistorySample {
    HistorySample {
        at,
        processes: view.processes,
        open_fds: view.open_fds,
        limit: view.limit,
        usage_ratio: view.usage_ratio,
        verdict: verdict_word(view),
        classes: view.classes.clone(),
        targets: view.targets.clone(),
    }
}

fn verdict_word(view: &ServiceView) -> String {
    let word = serde_json::to_value(view.verdict).ok();
    let word = word.as_ref().and_then(serde_json::Value::as_str);
    word.unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::SampleFilter;
    use crate::overview::Overview;
    use crate::testing::service;

    #[test]
    fn what_does_not_change_is_written_now_and_then() {
        let mut filter = SampleFilter::new(60.0);
        let mut overview = Overview::empty("h".to_owned(), 5.0, Timestamp::UNIX_EPOCH);
        overview.services = vec![service("web", 10)];
        let mut written = 0;
        for tick in 0..720 {
            written += filter.samples(&overview, f64::from(tick) * 5.0).len();
        }
        assert_eq!(written, 4, "an hour, every quarter of it");
    }

    #[test]
    fn what_changes_is_written_once_a_minute() {
        let mut filter = SampleFilter::new(60.0);
        let mut overview = Overview::empty("h".to_owned(), 5.0, Timestamp::UNIX_EPOCH);
        let mut written = 0;
        for tick in 0..120_u32 {
            overview.services = vec![service("web", u64::from(tick))];
            written += filter.samples(&overview, f64::from(tick) * 5.0).len();
        }
        assert_eq!(written, 10, "ten minutes");
    }

    #[test]
    fn services_that_are_gone_do_not_fill_the_memory() {
        let mut filter = SampleFilter::new(60.0);
        let mut overview = Overview::empty("h".to_owned(), 5.0, Timestamp::UNIX_EPOCH);
        for tick in 0..2000_u32 {
            overview.services = vec![service(&format!("job-{tick}"), 3)];
            filter.samples(&overview, f64::from(tick) * 60.0);
        }
        assert!(filter.last.len() < 200, "{}", filter.last.len());
    }
}
