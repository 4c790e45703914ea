//! The activity clock: it runs while a process opens and closes, and stops while it is idle.

/// The longest pause between two events that counts as activity, in nanoseconds. A server that gets
/// a request every second is slowed down evenly, so that shares of time do not change.
pub const LONGEST_PAUSE: u64 = 100_000_000;

/// The clock of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityClock {
    /// The latest event, by the monotonic clock.
    latest: u64,
    /// Active time until then.
    active: u64,
}

impl ActivityClock {
    /// A clock that starts with the process.
    #[must_use]
    pub fn new(began: u64) -> Self {
        Self {
            latest: began,
            active: 0,
        }
    }

    /// Notes an event; returns the active time until then. Events may be slightly out of order.
    pub fn advance(&mut self, at: u64) -> u64 {
        self.active = self.at(at);
        self.latest = self.latest.max(at);
        self.active
    }

    /// The active time until then, if nothing happens before.
    #[must_use]
    pub fn at(&self, at: u64) -> u64 {
        self.active + at.saturating_sub(self.latest).min(LONGEST_PAUSE)
    }

    /// When the latest event was.
    #[must_use]
    pub fn latest(&self) -> u64 {
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::{ActivityClock, LONGEST_PAUSE};

    #[test]
    fn idle_time_is_cut_and_late_events_do_not_turn_the_clock_back() {
        let mut clock = ActivityClock::new(1_000);
        assert_eq!(clock.advance(1_500), 500);
        assert_eq!(clock.advance(1_400), 500);
        assert_eq!(clock.advance(60_000_000_000), 500 + LONGEST_PAUSE);
        assert_eq!(clock.at(60_000_000_010), 510 + LONGEST_PAUSE);
        assert_eq!(clock.latest(), 60_000_000_000);
    }
}
