//! The user's and the playbook's input to the rules.

use jiff::civil::Date;

use crate::config::{Expectation, Levels, Suppressions};
use crate::playbook::Playbook;

/// Thresholds, expectations and accepted findings that the rules apply.
#[derive(Clone, Debug)]
pub struct RuleSettings {
    /// Thresholds of descriptors in use.
    pub levels: Levels,
    /// The expected number of descriptors.
    pub expectations: Vec<Expectation>,
    /// Findings that the user accepted.
    pub suppressions: Suppressions,
    /// Advice by class of descriptor.
    pub playbook: Playbook,
    /// Today's date: suppressions can expire.
    pub today: Date,
}
