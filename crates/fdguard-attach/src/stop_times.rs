//! How long threads of the process were stopped for one call.

use std::time::Duration;

/// The stops of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StopTimes {
    pub(crate) longest: Duration,
    pub(crate) total: Duration,
}

impl StopTimes {
    pub(crate) fn add(&mut self, stop: Duration) {
        self.longest = self.longest.max(stop);
        self.total += stop;
    }

    pub(crate) fn add_all(&mut self, others: Self) {
        self.longest = self.longest.max(others.longest);
        self.total += others.total;
    }
}
