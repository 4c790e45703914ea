//! The cost of a look in processor time: on a busy machine a look takes longer but costs the same.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time used when something began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost(Duration);

impl Cost {
    /// Starts counting.
    pub(super) fn start() -> Self {
        Self(used())
    }

    /// The time used since.
    pub(super) fn spent(self) -> Duration {
        used().saturating_sub(self.0)
    }
}

/// For all threads: several threads list large tables.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Cost;

    #[test]
    fn waiting_costs_nothing_and_work_does() {
        let cost = Cost::start();
        std::thread::sleep(Duration::from_millis(50));
        assert!(cost.spent() < Duration::from_millis(25));
        while cost.spent() < Duration::from_millis(30) {
            std::hint::black_box((0..1000u64).sum::<u64>());
        }
    }
}
