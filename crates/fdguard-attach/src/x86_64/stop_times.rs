//! How long threads of the process were stopped for one call, and how often they had to run for it.

use std::time::Duration;

/// One stop of a thread, from the interruption until it was let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StopCost {
    pub(crate) time: Duration,
    /// How often the tracer waited until the thread had done something. On a busy machine the
    /// thread waits for a processor each time.
    pub(crate) waits: u32,
}

/// The stops of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StopTimes {
    pub(crate) longest: Duration,
    pub(crate) total: Duration,
    pub(crate) stops: u32,
    pub(crate) waits: u32,
}

impl StopTimes {
    pub(crate) fn add(&mut self, stop: StopCost) {
        self.longest = self.longest.max(stop.time);
        self.total += stop.time;
        self.stops += 1;
        self.waits += stop.waits;
    }

    pub(crate) fn add_all(&mut self, others: Self) {
        self.longest = self.longest.max(others.longest);
        self.total += others.total;
        self.stops += others.stops;
        self.waits += others.waits;
    }
}
