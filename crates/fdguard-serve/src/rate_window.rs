//! The change of a count per second over the last minutes.

use std::collections::VecDeque;

/// The window, in seconds.
const WINDOW: f64 = 300.0;
/// Samples that are kept: closer ones replace the last.
const SAMPLES: usize = 16;
/// A shorter time gives no rate.
const SHORTEST: f64 = 1.0;

/// Counts of the last minutes.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateWindow {
    samples: VecDeque<(f64, u64)>,
    latest: Option<(f64, u64)>,
}

impl RateWindow {
    pub(crate) fn observe(&mut self, now: f64, count: u64) {
        self.latest = Some((now, count));
        let spacing = WINDOW / SAMPLES as f64;
        let is_due = self
            .samples
            .back()
            .is_none_or(|(at, _)| now - at >= spacing);
        if is_due {
            self.samples.push_back((now, count));
        }
        while self.samples.len() > 1
            && self
                .samples
                .front()
                .is_some_and(|(at, _)| now - at > WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Begins anew: after a restart the old counts say nothing.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn per_second(&self) -> Option<f64> {
        let ((from, first), (to, last)) = (self.samples.front()?, self.latest?);
        let passed = to - from;
        let change = last as f64 - *first as f64;
        (passed >= SHORTEST).then(|| change / passed)
    }
}

#[cfg(test)]
mod tests {
    use super::RateWindow;

    #[test]
    fn the_rate_is_that_of_the_last_minutes() {
        let mut window = RateWindow::default();
        assert_eq!(window.per_second(), None);
        for tick in 0..1000 {
            window.observe(f64::from(tick) * 5.0, 100);
        }
        assert_eq!(window.per_second(), Some(0.0));
        for tick in 0..120_u32 {
            window.observe(5000.0 + f64::from(tick) * 5.0, 100 + u64::from(tick) * 10);
        }
        assert_eq!(window.per_second(), Some(2.0));
        assert!(window.samples.len() <= 17);
        window.restart();
        window.observe(6000.0, 5);
        assert_eq!(window.per_second(), None, "one look is no rate");
    }
}
