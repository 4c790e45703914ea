//! Limits how often and how closely to look, so that the watcher stays cheap.

use std::time::Duration;

/// Full looks may take this fraction of the time: one in two thousand.
const FULL_SHARE: u32 = 2000;
/// Listing what changed may take this fraction: one in ten.
const LIST_SHARE: u32 = 10;
/// Full samples more frequent than this add nothing.
const FULL_AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// The same for limits, children and the host.
const AROUND_AT_MOST_EVERY: Duration = Duration::from_secs(5);

/// The schedule of looks. Times are since the watch began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    list: Duration,
    full: Duration,
    around: Duration,
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

    pub(super) fn listed(&mut self, now: Duration, cost: Duration) {
        self.list = now + cost * LIST_SHARE;
    }

    pub(super) fn looked_fully(&mut self, now: Duration, cost: Duration) {
        self.full = now + (cost * FULL_SHARE).max(FULL_AT_MOST_EVERY);
    }

    pub(super) fn looked_around(&mut self, now: Duration, cost: Duration) {
        self.around = now + (cost * FULL_SHARE).max(AROUND_AT_MOST_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Budget;

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
