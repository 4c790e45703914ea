//! When to probe, and when a series of results changes the state. Pure: times are arguments.

use std::time::{Duration, Instant};

/// When and how often a check probes, under Kubernetes' names in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Before the first probe (`initial_delay_seconds`).
    pub initial_delay: Duration,
    /// From probe to probe (`period_seconds`).
    pub period: Duration,
    /// How long one probe may take (`timeout_seconds`).
    pub timeout: Duration,
    /// Successes in a row that make it healthy (`success_threshold`).
    pub success_threshold: u32,
    /// Failures in a row that make it failing (`failure_threshold`).
    pub failure_threshold: u32,
}

impl Default for Timing {
    /// Kubernetes' values.
    fn default() -> Self {
        Self {
            initial_delay: Duration::ZERO,
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            success_threshold: 1,
            failure_threshold: 3,
        }
    }
}

/// The health of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HealthState {
    /// Too few results since the start.
    #[default]
    Unknown,
    /// The check succeeds.
    Healthy,
    /// The check fails.
    Failing,
}

/// A change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// It succeeds from now on.
    Healthy,
    /// It fails.
    Failing {
        /// The reason of the last probe.
        reason: String,
        /// How many failed in a row.
        failures: u32,
    },
}

/// The first pause after a start. It doubles up to the period, so that readiness is detected early.
const EAGER: Duration = Duration::from_millis(100);

/// The results of one check since the service started.
#[derive(Clone, Debug)]
pub struct CheckSeries {
    timing: Timing,
    state: HealthState,
    next: Instant,
    pause: Duration,
    began: Instant,
    successes: u32,
    failures: u32,
    /// The next failure counts from this moment on.
    counts_from: Instant,
    ever_well: bool,
}

impl CheckSeries {
    /// The service was started at `now`.
    #[must_use]
    pub fn start(timing: Timing, now: Instant) -> Self {
        let next = now + timing.initial_delay;
        Self {
            timing,
            state: HealthState::Unknown,
            next,
            pause: EAGER.min(timing.period),
            began: next,
            successes: 0,
            failures: 0,
            counts_from: next,
            ever_well: false,
        }
    }

    /// When the next probe starts.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.next
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> HealthState {
        self.state
    }

    /// A probe starts; returns its deadline.
    pub fn probing(&mut self, now: Instant) -> Instant {
        self.began = now;
        now + self.timing.timeout
    }

    /// Records a probe's result. Probes start one period apart; after a longer probe the next
    /// starts at once.
    pub fn heard(&mut self, now: Instant, answer: Result<(), String>) -> Option<HealthChange> {
        let pause = match answer {
            Ok(()) => self.timing.period,
            Err(_) => self.pause(),
        };
        self.next = (self.began + pause).max(now);
        match answer {
            Ok(()) => self.success(),
            Err(reason) => self.failure(now, reason),
        }
    }

    /// The probe could not run: it does not count, and the next follows as after a failure.
    pub fn passed_over(&mut self, now: Instant) {
        self.next = now + self.pause();
    }

    /// The pause after a probe that did not succeed.
    fn pause(&mut self) -> Duration {
        if self.ever_well {
            return self.timing.period;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(self.timing.period);
        pause
    }

    /// A one-time condition has occurred: thresholds do not apply.
    pub fn reached(&mut self) -> Option<HealthChange> {
        self.successes = self.timing.success_threshold;
        self.success()
    }

    fn success(&mut self) -> Option<HealthChange> {
        self.ever_well = true;
        self.failures = 0;
        self.successes = self.successes.saturating_add(1);
        if self.state == HealthState::Healthy || self.successes < self.timing.success_threshold {
            return None;
        }
        self.state = HealthState::Healthy;
        Some(HealthChange::Healthy)
    }

    /// Before the first success, probes are more frequent than configured, so that readiness is
    /// detected early. Their failures count only once per period, otherwise a slow start would look
    /// like a failing service.
    fn failure(&mut self, now: Instant, reason: String) -> Option<HealthChange> {
        self.successes = 0;
        if !self.ever_well && now < self.counts_from {
            return None;
        }
        self.counts_from = self.began + self.timing.period;
        self.failures = self.failures.saturating_add(1);
        if self.state == HealthState::Failing || self.failures < self.timing.failure_threshold {
            return None;
        }
        self.state = HealthState::Failing;
        Some(HealthChange::Failing {
            reason,
            failures: self.failures,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{CheckSeries, HealthChange, HealthState, Timing};

    const SECOND: Duration = Duration::from_secs(1);

    fn timing() -> Timing {
        Timing {
            period: SECOND,
            ..Timing::default()
        }
    }

    /// Probes on schedule; returns the changes with their times since the start.
    fn run(timing: Timing, answers: &[bool]) -> Vec<(Duration, HealthChange)> {
        let start = Instant::now();
        let mut series = CheckSeries::start(timing, start);
        let mut changes = Vec::new();
        for answer in answers {
            let now = series.due();
            series.probing(now);
            let answer = answer.then_some(()).ok_or_else(|| "no".to_owned());
            if let Some(change) = series.heard(now, answer) {
                changes.push((now - start, change));
            }
        }
        changes
    }

    fn failing(failures: u32) -> HealthChange {
        HealthChange::Failing {
            reason: "no".into(),
            failures,
        }
    }

    #[test]
    fn one_success_makes_it_healthy_and_three_failures_make_it_failing() {
        let answers = [
            true, true, false, false, true, false, false, false, false, true,
        ];
        let changes = run(timing(), &answers);
        assert_eq!(
            changes,
            [
                (Duration::ZERO, HealthChange::Healthy),
                (7 * SECOND, failing(3)),
                (9 * SECOND, HealthChange::Healthy)
            ]
        );
    }

    #[test]
    fn the_success_threshold_asks_for_a_row() {
        let timing = Timing {
            success_threshold: 2,
            ..timing()
        };
        let changes = run(timing, &[true, false, true, true]);
        assert_eq!(changes, [(3 * SECOND, HealthChange::Healthy)]);
    }

    #[test]
    fn a_start_is_probed_often_but_fails_no_sooner() {
        let timing = Timing {
            initial_delay: SECOND,
            ..timing()
        };
        let start = Instant::now();
        let mut series = CheckSeries::start(timing, start);
        let mut probes = 0;
        let change = loop {
            let now = series.due();
            probes += 1;
            series.probing(now);
            if let Some(change) = series.heard(now, Err("no".into())) {
                break (now - start, change);
            }
        };
        assert!(probes > 4, "{probes}");
        assert_eq!(change.1, failing(3));
        assert!(change.0 >= 3 * SECOND, "{change:?}");
        assert!(change.0 <= 5 * SECOND, "{change:?}");
        assert_eq!(series.state(), HealthState::Failing);
    }

    #[test]
    fn a_probe_that_took_longer_than_the_period_is_followed_at_once() {
        let start = Instant::now();
        let mut series = CheckSeries::start(timing(), start);
        assert_eq!(series.probing(start), start + SECOND);
        series.heard(start + 5 * SECOND, Ok(()));
        assert_eq!(series.due(), start + 5 * SECOND);
    }
}
