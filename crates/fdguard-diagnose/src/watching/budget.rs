//! Limits how often and how closely to look, so that the watcher stays cheap.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Full looks may take this fraction of the time: one in two thousand.
const FULL_SHARE: u32 = 2000;
/// Listing what changed may take this fraction: one in ten.
const LIST_SHARE: u32 = 10;
/// Full samples more frequent than this add nothing.
const FULL_AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// The same for limits, children and the host.
const AROUND_AT_MOST_EVERY: Duration = Duration::from_secs(5);
/// The same for its name, which is one short file.
const NAME_AT_MOST_EVERY: Duration = Duration::from_millis(100);

/// Measures what a look costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct CostMeter {
    began: Instant,
    processor: Duration,
}

impl CostMeter {
    pub(super) fn start() -> Self {
        Self {
            began: Instant::now(),
            processor: processor_time(),
        }
    }

    /// Waiting for a processor costs nothing: on a busy machine fdguard would look rarely, and find
    /// out late. Work on several cores at once costs no more than it takes.
    pub(super) fn cost(&self) -> Duration {
        let processor = processor_time().saturating_sub(self.processor);
        processor.min(self.began.elapsed())
    }
}

/// The processor time of all threads of fdguard.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The schedule of looks. Times are since the watch began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    list: Duration,
    full: Duration,
    around: Duration,
    name: Duration,
}

impl Budget {
    /// Whether the table may be listed after its count changed.
    pub(super) fn may_list(&self, now: Duration) -> bool {
        now >= self.list
    }

    /// Whether to list it and look again at known descriptors although nothing seems to have
    /// changed: an equal count can hide a swap.
    pub(super) fn is_full_due(&self, now: Duration) -> bool {
        now >= self.full
    }

    /// Whether to read limits, children and the host again.
    pub(super) fn is_around_due(&self, now: Duration) -> bool {
        now >= self.around
    }

    /// Whether to read its name again.
    pub(super) fn is_name_due(&self, now: Duration) -> bool {
        now >= self.name
    }

    pub(super) fn listed(&mut self, now: Duration, cost: Duration) {
        self.list = now + cost * LIST_SHARE;
    }

    pub(super) fn looked_fully(&mut self, now: Duration, cost: Duration) {
        self.full = now + (cost * FULL_SHARE).max(FULL_AT_MOST_EVERY);
    }

    pub(super) fn looked_around(&mut self, now: Duration, cost: Duration) {
        self.around = now + (cost * FULL_SHARE).max(AROUND_AT_MOST_EVERY);
    }

    pub(super) fn read_name(&mut self, now: Duration, cost: Duration) {
        self.name = now + (cost * FULL_SHARE).max(NAME_AT_MOST_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Budget, CostMeter};

    #[test]
    fn waiting_costs_nothing() {
        let meter = CostMeter::start();
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let waited = receiver.recv_timeout(Duration::from_millis(200));
        assert!(waited.is_err());
        let cost = meter.cost();
        assert!(cost < Duration::from_millis(100), "{cost:?}");
        drop(sender);
    }

    #[test]
    fn a_dear_listing_is_followed_by_a_long_pause() {
        let mut budget = Budget::default();
        assert!(budget.may_list(Duration::ZERO) && budget.is_full_due(Duration::ZERO));
        let cost = Duration::from_millis(100);
        budget.listed(Duration::from_secs(1), cost);
        budget.looked_fully(Duration::from_secs(1), cost);
        assert!(!budget.may_list(Duration::from_millis(1900)));
        assert!(budget.may_list(Duration::from_secs(2)));
        assert!(!budget.is_full_due(Duration::from_secs(200)));
        assert!(budget.is_full_due(Duration::from_secs(201)));
    }

    #[test]
    fn a_cheap_process_is_looked_at_fully_once_a_second() {
        let mut budget = Budget::default();
        budget.looked_fully(Duration::from_secs(1), Duration::from_micros(50));
        assert!(!budget.is_full_due(Duration::from_millis(1900)));
        assert!(budget.is_full_due(Duration::from_secs(2)));
    }
}
