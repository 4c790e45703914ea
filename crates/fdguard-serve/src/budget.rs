//! How much processor time the looks may take.
//!
//! A share of one core flows in with time and is spent by what was measured, not by an estimate. A
//! look may begin while anything is left, and may overdraw: a table of 20,000 descriptors is read
//! once, and paid for by the next minutes.

use std::time::Duration;

/// At most this long a share is saved up: a quiet hour must not pay for a burst.
const SAVED: f64 = 30.0;
/// The part of the income that a scan can use up.
const SCAN_SHARE: f64 = 0.75;
/// At most this long a debt lasts.
const OWED: f64 = 120.0;

/// Processor time that may still be used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuBudget {
    share: f64,
    balance: f64,
    at: Option<Duration>,
    /// What flowed in with the last step of time.
    income: f64,
}

impl CpuBudget {
    /// This share of one core: 0.005 is half a percent.
    #[must_use]
    pub fn new(share: f64) -> Self {
        Self {
            share,
            balance: 0.0,
            at: None,
            income: 0.0,
        }
    }

    /// Time has passed. The first call gives the share of a few seconds to begin with.
    pub fn advance(&mut self, now: Duration) {
        let passed = match self.at {
            Some(at) => now.saturating_sub(at).as_secs_f64(),
            None => 5.0,
        };
        self.at = Some(now);
        let most = self.share * SAVED;
        self.income = passed * self.share;
        self.balance = (self.balance + self.income).min(most);
    }

    /// The scan of the host took this much. It is needed in any case, so a part of the income stays
    /// for looks: a scan that uses everything would find what grows and never look at it.
    pub fn spend_scan(&mut self, cost: Duration) {
        self.balance -= cost.as_secs_f64().min(self.income * SCAN_SHARE);
    }

    /// Something took this much processor time.
    pub fn spend(&mut self, cost: Duration) {
        let least = -self.share * OWED;
        self.balance = (self.balance - cost.as_secs_f64()).max(least);
    }

    /// Whether a look may begin.
    #[must_use]
    pub fn has_some(&self) -> bool {
        self.balance > 0.0
    }

    /// Whether half of what can be saved up is there: enough for looks that are not urgent.
    #[must_use]
    pub fn has_plenty(&self) -> bool {
        self.balance > self.share * SAVED / 4.0
    }

    /// The time that was passed last.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.at.unwrap_or_default()
    }

    /// Seconds of processor time that are left; negative when overdrawn.
    #[must_use]
    pub fn balance(&self) -> f64 {
        self.balance
    }
}

/// `0.5%`, or `0.005`.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text.trim(), 1.0),
    };
    let share = number.trim().parse::<f64>().ok().map(|share| share / scale);
    share
        .filter(|share| (0.0001..=1.0).contains(share))
        .ok_or_else(|| "must be a share of one core from 0.01% to 100%, such as 0.5%".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CpuBudget, parse_share};

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn over_a_long_time_the_share_is_kept_whatever_a_look_costs() {
        let mut budget = CpuBudget::new(0.005);
        let mut spent = 0.0;
        for tick in 0..10_000 {
            budget.advance(seconds(f64::from(tick) * 5.0));
            while budget.has_some() {
                budget.spend(seconds(0.013));
                spent += 0.013;
            }
        }
        let share = spent / 50_000.0;
        assert!((0.0049..0.0051).contains(&share), "{share}");
    }

    #[test]
    fn one_dear_look_is_followed_by_a_pause_and_not_by_silence_for_ever() {
        let mut budget = CpuBudget::new(0.005);
        budget.advance(Duration::ZERO);
        assert!(budget.has_some());
        budget.spend(seconds(60.0));
        assert!(!budget.has_some());
        budget.advance(seconds(100.0));
        assert!(!budget.has_some());
        budget.advance(seconds(130.0));
        assert!(budget.has_some());
    }

    #[test]
    fn a_quiet_hour_does_not_pay_for_a_burst() {
        let mut budget = CpuBudget::new(0.01);
        budget.advance(Duration::ZERO);
        budget.advance(seconds(3600.0));
        assert!(budget.has_plenty() && budget.balance() <= 0.3 + 1e-9);
        budget.spend(seconds(0.25));
        assert!(budget.has_some() && !budget.has_plenty());
    }

    #[test]
    fn a_scan_that_is_too_dear_leaves_something_for_looks() {
        let mut budget = CpuBudget::new(0.01);
        for tick in 0..100 {
            budget.advance(seconds(f64::from(tick) * 0.25));
            budget.spend_scan(seconds(0.1));
        }
        assert!(budget.has_some());
    }

    #[test]
    fn a_clock_that_went_back_takes_nothing_away() {
        let mut budget = CpuBudget::new(0.01);
        budget.advance(seconds(100.0));
        let before = budget.balance();
        budget.advance(seconds(50.0));
        assert_eq!(budget.balance(), before);
    }

    #[test]
    fn shares_are_read_as_people_write_them() {
        assert_eq!(parse_share("0.5%"), Ok(0.005));
        assert_eq!(parse_share("0.02"), Ok(0.02));
        for wrong in ["", "%", "0", "-1%", "200%", "much", "NaN", "inf"] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
    }
}
