//! A value and its source.

use std::collections::BTreeMap;

use fdguard_core::located::ValueSource;
use fdguard_core::units;

use crate::health::CheckSpec;

/// A value as written: one string, or several.
#[derive(Clone, Debug)]
pub struct ConfigValue {
    /// The strings as written.
    pub texts: Vec<String>,
    /// The checks that were written as tables.
    pub checks: Vec<CheckSpec>,
    /// Its source.
    pub source: ValueSource,
}

/// The values that are set, by key.
#[derive(Clone, Debug, Default)]
pub struct Values(pub(super) BTreeMap<&'static str, ConfigValue>);

impl Values {
    /// Sets a value, replacing an earlier one.
    pub fn set(&mut self, key: &'static str, texts: Vec<String>, source: ValueSource) {
        self.insert(key, texts, Vec::new(), source);
    }

    /// Sets checks that are already parsed.
    pub(super) fn set_checks(
        &mut self,
        key: &'static str,
        checks: Vec<CheckSpec>,
        source: ValueSource,
    ) {
        let texts = checks.iter().map(shown).collect();
        self.insert(key, texts, checks, source);
    }

    fn insert(
        &mut self,
        key: &'static str,
        texts: Vec<String>,
        checks: Vec<CheckSpec>,
        source: ValueSource,
    ) {
        let value = ConfigValue {
            texts,
            checks,
            source,
        };
        self.0.insert(key, value);
    }

    /// The value under this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&ConfigValue> {
        self.0.get(key)
    }

    /// These values, overridden by `over`.
    #[must_use]
    pub(super) fn under(mut self, over: &Self) -> Self {
        let over = over.0.iter().map(|(key, value)| (*key, value.clone()));
        self.0.extend(over);
        self
    }

    /// Whether the values are equal, whatever their source.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        let texts = |values: &Self| -> Vec<(&'static str, Vec<String>)> {
            let values = values.0.iter();
            values.map(|(key, one)| (*key, one.texts.clone())).collect()
        };
        texts(self) == texts(other)
    }
}

/// A check with its timing, in the form of a flag.
fn shown(check: &CheckSpec) -> String {
    let timing = &check.timing;
    format!(
        "{} period={} timeout={} delay={} success={} failure={}",
        check.kind,
        units::exact_duration(timing.period),
        units::exact_duration(timing.timeout),
        units::exact_duration(timing.initial_delay),
        timing.success_threshold,
        timing.failure_threshold
    )
}
