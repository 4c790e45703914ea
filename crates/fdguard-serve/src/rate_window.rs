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
    /// The window of a count that did not change in this time.
    fn level(since: f64, until: f64, count: u64) -> Self {
        let mut window = Self::default();
        let spacing = WINDOW / SAMPLES as f64;
        let since = since.max(until - WINDOW);
        let mut at = since;
        while at <= until {
            window.observe(at, count);
            at += spacing;
        }
        window
    }

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

    /// Whether all of its counts are the same.
    fn is_level(&self) -> bool {
        let latest = self.latest.map(|(_, count)| count);
        self.samples.iter().all(|(_, count)| Some(*count) == latest)
    }

    pub(crate) fn per_second(&self) -> Option<f64> {
        let ((from, first), (to, last)) = (self.samples.front()?, self.latest?);
        let passed = to - from;
        let change = last as f64 - *first as f64;
        (passed >= SHORTEST).then(|| change / passed)
    }
}

/// The same for one process. Most processes keep their count, and those have no window: a host has
/// thousands of processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessRate {
    /// Since when the count is the same, and the count; not kept up while there is a window.
    level: Option<(f64, u64)>,
    latest: f64,
    /// While its counts of the last minutes differ.
    window: Option<Box<RateWindow>>,
}

impl ProcessRate {
    pub(crate) fn observe(&mut self, now: f64, count: u64) {
        let (since, level) = *self.level.get_or_insert((now, count));
        if self.window.is_none() && count != level {
            self.window = Some(Box::new(RateWindow::level(since, self.latest, level)));
        }
        self.latest = now;
        let Some(window) = &mut self.window else {
            return;
        };
        window.observe(now, count);
        if window.is_level() {
            self.level = window.samples.front().copied();
            self.window = None;
        }
    }

    pub(crate) fn per_second(&self) -> Option<f64> {
        match (&self.window, self.level) {
            (Some(window), _) => window.per_second(),
            (None, Some((since, _))) => (self.latest - since >= SHORTEST).then_some(0.0),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ProcessRate, RateWindow};

    #[test]
    fn a_process_has_about_the_rate_of_a_service_that_is_only_it() {
        let (mut process, mut service) = (ProcessRate::default(), RateWindow::default());
        assert_eq!(process.per_second(), None);
        // Level, then growing, then level again for longer than the window, then shrinking.
        let counts = (0..400_u64).map(|tick| match tick {
            0..100 => 50,
            100..160 => 50 + 3 * (tick - 99),
            160..300 => 230,
            _ => 230 - (tick - 299),
        });
        let mut without_window = 0;
        for (tick, count) in counts.enumerate() {
            let now = tick as f64 * 5.0;
            process.observe(now, count);
            service.observe(now, count);
            assert_eq!(process.per_second().is_some(), tick > 0, "tick {tick}");
            let rate = process.per_second().unwrap_or(0.0);
            let expected = service.per_second().unwrap_or(0.0);
            // The windows begin at other looks.
            let is_near = (rate - expected).abs() <= 0.1 * expected.abs() + 0.05;
            assert!(is_near, "tick {tick}: {rate} and {expected}");
            without_window += usize::from(process.window.is_none());
        }
        assert!(without_window > 150, "{without_window}");
    }

    #[test]
    fn a_process_that_keeps_its_count_has_no_window() {
        let mut process = ProcessRate::default();
        for tick in 0..1000 {
            process.observe(f64::from(tick), 7);
            assert!(process.window.is_none());
        }
        assert_eq!(process.per_second(), Some(0.0));
    }

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
