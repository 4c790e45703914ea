//! Budgets: what a service may use before fdguard warns, and before it restarts the service.
//!
//! A [`Budget`] is one measure with a warning level and an action level. A [`ServiceReading`] has
//! the measurements of a look. [`judge`] compares the two and keeps a [`BudgetHistory`] of what was
//! already reported. Nothing here reads the system or the clock.

mod amount;
mod judge;
mod reading;
mod spec;

#[cfg(test)]
mod judge_tests;
#[cfg(test)]
mod tests;

use fdguard_core::class_pattern::ClassPattern;

pub use amount::Amount;
pub use judge::{BudgetHistory, BudgetVerdict, Excess, Kind, judge};
pub use reading::{HighestFd, LimitAhead, MemoryUse, Observation, ProcessReading, ServiceReading};
pub use spec::BadBudget;

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Open descriptors of a process, against its soft limit.
    Fds,
    /// The highest number in use, against the 1024 of `select()`.
    Highest,
    /// Descriptors of a class, or of a family of classes, in one process.
    Class(ClassPattern),
    /// The rate per minute of descriptors judged to be leaking.
    Growth,
    /// The time to the nearest limit at that rate. Less is worse.
    Wall,
    /// Processes that have exited and were not reaped.
    Zombies,
    /// Memory of all processes together.
    Memory,
    /// Processes other than the first one.
    Children,
}

/// One measure and its levels. At least one level is set.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// What is measured.
    pub what: Measure,
    /// The warning level.
    pub warn: Option<Amount>,
    /// The service is restarted from this level on.
    pub act: Option<Amount>,
    /// Only for programs that can call `select()`: set for the default budget.
    pub only_select: bool,
}

impl Budget {
    fn new(what: Measure, warn: Option<Amount>, act: Option<Amount>) -> Self {
        Self {
            what,
            warn,
            act,
            only_select: false,
        }
    }

    /// Whether it is a budget of this measure.
    #[must_use]
    pub fn is_of(&self, what: &Measure) -> bool {
        self.what == *what
    }
}

/// The budgets without any configuration: descriptors at 70 % and 90 % of the soft limit; numbers
/// at 900 and 1000 for programs that can call `select()`; a warning at a hundred connections that
/// the peer has closed and the program has not.
#[must_use]
pub fn defaults() -> Vec<Budget> {
    let percent = |share| Some(Amount::Percent(share));
    let count = |count| Some(Amount::Count(count));
    let select = Budget {
        only_select: true,
        ..Budget::new(Measure::Highest, count(900), count(1000))
    };
    let mut all = vec![
        Budget::new(Measure::Fds, percent(70.0), percent(90.0)),
        select,
    ];
    if let Ok(class) = "tcp:CLOSE_WAIT".parse() {
        all.push(Budget::new(Measure::Class(class), count(100), None));
    }
    all
}

/// The defaults combined with the user's budgets: a measure that is set, or switched off, replaces
/// the default of the same measure.
#[must_use]
pub fn effective(given: &[BudgetSetting]) -> Vec<Budget> {
    let mut all = defaults();
    for one in given {
        let what = match one {
            BudgetSetting::Set(budget) => &budget.what,
            BudgetSetting::Off(what) => what,
        };
        all.retain(|other| !other.is_of(what));
        if let BudgetSetting::Set(budget) = one {
            all.push(budget.clone());
        }
    }
    all
}

/// The user's setting for one measure: `fds=80%:90%`, or `fds=off`.
#[derive(Clone, Debug, PartialEq)]
pub enum BudgetSetting {
    /// This budget.
    Set(Budget),
    /// None for this measure, not even the default.
    Off(Measure),
}
