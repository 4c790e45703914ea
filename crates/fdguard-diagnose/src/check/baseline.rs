//! The descriptors that a passing check held, to compare the next run with.

use std::collections::BTreeMap;

use fdguard_core::Class;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const SCHEMA: &str = "fdguard.baseline/1";

/// How many of each class.
pub type HeldCounts = BTreeMap<String, u64>;

/// The file.
#[derive(Debug, Serialize, Deserialize)]
pub struct CheckBaseline {
    schema: String,
    /// When the check ended.
    pub taken_at: Timestamp,
    classes: HeldCounts,
}

impl CheckBaseline {
    /// What is held now.
    #[must_use]
    pub fn new(classes: HeldCounts) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            taken_at: Timestamp::now(),
            classes,
        }
    }

    /// Reads a saved one; `None` if this is something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let saved: Self = serde_json::from_str(text).ok()?;
        (saved.schema == SCHEMA).then_some(saved)
    }

    /// Classes with clearly more descriptors now: by a quarter, and by at least three. Each with
    /// both counts.
    pub(super) fn grown<'h>(&self, now: &'h HeldCounts) -> Vec<(&'h str, u64, u64)> {
        let grown = now.iter().filter_map(|(class, count)| {
            let before = self.classes.get(class).copied().unwrap_or(0);
            (*count > before + (before / 4).max(2)).then_some((class.as_str(), before, *count))
        });
        grown.collect()
    }
}

/// Counts descriptors by class. The state of a connection is momentary, so it is ignored.
pub(super) fn count(classes: impl Iterator<Item = (Class, u64)>) -> HeldCounts {
    let mut held = HeldCounts::new();
    for (class, count) in classes {
        let name = match class {
            Class::Tcp(_) => "tcp".to_owned(),
            other => other.to_string(),
        };
        *held.entry(name).or_default() += count;
    }
    held
}

#[cfg(test)]
mod tests {
    use super::{CheckBaseline, HeldCounts};

    fn held(classes: &[(&str, u64)]) -> HeldCounts {
        let owned = classes
            .iter()
            .map(|(class, count)| ((*class).to_owned(), *count));
        owned.collect()
    }

    #[test]
    fn r36_clearly_more_than_before_is_told_and_a_few_are_not() {
        let before = CheckBaseline::new(held(&[("tcp", 40), ("pipe", 2)]));
        assert_eq!(before.grown(&held(&[("tcp", 50), ("pipe", 4)])), []);
        let now = held(&[("tcp", 51), ("pipe", 5), ("eventpoll", 3)]);
        let expected = [("eventpoll", 0, 3), ("pipe", 2, 5), ("tcp", 40, 51)];
        assert_eq!(before.grown(&now), expected);
    }
}
