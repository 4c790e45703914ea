//! The monotonic clock, which every process of the machine shares.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The current time.
#[must_use]
pub fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// The same in nanoseconds.
#[must_use]
pub fn monotonic_nanos() -> u64 {
    u64::try_from(monotonic().as_nanos()).unwrap_or(u64::MAX)
}
