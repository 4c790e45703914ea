//! A value and its source.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::health::CheckSpec;
use crate::unit;

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// The default applies.
    Default,
    /// The file.
    File(FilePosition),
    /// The command line.
    Flag,
    /// This environment variable.
    Environment(&'static str),
}

/// A position in the file, both from 1; the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePosition {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl FilePosition {
    /// The position of these bytes of the text.
    pub(super) fn from_span(text: &str, span: &Range<usize>) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let last = before.rsplit('\n').next().unwrap_or_default();
        Self {
            line: 1 + before.matches('\n').count(),
            column: 1 + last.chars().count(),
        }
    }
}

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
        let checks = Vec::new();
        self.0.insert(
            key,
            ConfigValue {
                texts,
                checks,
                source,
            },
        );
    }

    /// Sets checks that are already parsed.
    pub(super) fn set_checks(
        &mut self,
        key: &'static str,
        checks: Vec<CheckSpec>,
        source: ValueSource,
    ) {
        let texts = checks.iter().map(shown).collect();
        self.0.insert(
            key,
            ConfigValue {
                texts,
                checks,
                source,
            },
        );
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
        unit::shown(timing.period),
        unit::shown(timing.timeout),
        unit::shown(timing.initial_delay),
        timing.success_threshold,
        timing.failure_threshold
    )
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMistake {
    /// The file, if the error is in it.
    pub file: Option<String>,
    /// Where in the file.
    pub place: Option<FilePosition>,
    /// What is wrong, in one line.
    pub message: String,
}

impl ConfigMistake {
    pub(super) fn new(source: ValueSource, message: impl fmt::Display) -> Self {
        let place = match source {
            ValueSource::File(place) => Some(place),
            _ => None,
        };
        Self {
            file: None,
            place,
            message: one_line(&message.to_string()),
        }
    }

    /// Whether it is in the file, and not on the command line.
    #[must_use]
    pub fn is_in_file(&self) -> bool {
        self.place.is_some() || self.file.is_some()
    }
}

impl fmt::Display for ConfigMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        if let Some(place) = self.place {
            write!(f, "line {}, column {}: ", place.line, place.column)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigMistake {}

fn one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.trim_end().chars().map(shown).collect()
}
