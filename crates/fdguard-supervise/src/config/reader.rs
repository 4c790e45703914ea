//! Parses the text of each key.

use std::fmt;
use std::str::FromStr;

use fdguard_core::located::{ConfigMistake, ValueSource};

use super::key::{self, Key};
use super::value::Values;

/// Reads the values of one table; a missing value is the key's default.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'v> {
    pub(super) keys: &'static [Key],
    pub(super) values: &'v Values,
}

impl Reader<'_> {
    /// The texts under a key.
    pub(super) fn texts(self, name: &'static str) -> (Vec<String>, ValueSource) {
        match (self.values.get(name), key::find(self.keys, name)) {
            (Some(value), _) => (value.texts.clone(), value.source),
            (None, Ok(key)) => {
                let texts = key.default.iter().map(ToString::to_string);
                (texts.collect(), ValueSource::Default)
            }
            (None, Err(_)) => (Vec::new(), ValueSource::Default),
        }
    }

    /// All strings, parsed by `parse`.
    pub(super) fn all<T, E: fmt::Display>(
        self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, ConfigMistake> {
        let (texts, source) = self.texts(name);
        let told = |error: E| mistake(name, source, error);
        let parsed = texts.iter().map(|text| parse(text).map_err(told));
        parsed.collect()
    }

    /// The single string, parsed by `parse`.
    pub(super) fn by<T, E: fmt::Display>(
        self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, ConfigMistake> {
        let last = self.all(name, parse)?.pop();
        last.ok_or_else(|| mistake(name, self.texts(name).1, "requires a value"))
    }

    /// The single string.
    pub(super) fn one<T>(self, name: &'static str) -> Result<T, ConfigMistake>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        self.by(name, str::parse)
    }

    /// The single string, parsed by `parse`; `None` if it is `off` or missing.
    pub(super) fn maybe<T, E: fmt::Display>(
        self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ConfigMistake> {
        let unless_off = |text: &str| match text {
            "off" => Ok(None),
            text => parse(text).map(Some),
        };
        Ok(self.all(name, unless_off)?.pop().flatten())
    }
}

/// An error about this key, wherever it was set.
pub(super) fn mistake(name: &str, source: ValueSource, error: impl fmt::Display) -> ConfigMistake {
    let shown = match source {
        ValueSource::Flag => format!("--{}", name.replace('_', "-")),
        ValueSource::Environment(variable) => variable.to_owned(),
        ValueSource::File(_) | ValueSource::Default => name.to_owned(),
    };
    ConfigMistake::new(source, shown, error)
}
