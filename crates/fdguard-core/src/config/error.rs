//! What is wrong with the file, in one line: the line, the key, the reason.

use std::fmt;

use toml::Spanned;

/// Why a file was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The line of the file, from 1.
    pub line: usize,
    /// The key with its table, such as `levels.warning`; empty where the line has none.
    pub key: String,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    /// A TOML parse error. The parser knows the position; the key is read from there.
    pub(super) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let start = error.span().map_or(0, |span| span.start);
        Self {
            line: line_of(text, start),
            key: printable(&key_at(text, start)),
            message: printable(error.message()),
        }
    }
}

/// The text that values were read from, to name their lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) text: &'a str,
}

impl Place<'_> {
    /// An error about this value.
    pub(super) fn error<T>(
        self,
        value: &Spanned<T>,
        key: &str,
        message: impl fmt::Display,
    ) -> ConfigError {
        ConfigError {
            line: line_of(self.text, value.span().start),
            key: key.to_owned(),
            message: printable(&message.to_string()),
        }
    }
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    1 + before.filter(|byte| **byte == b'\n').count()
}

/// The key set on the line of this position, after the name of its table.
fn key_at(text: &str, at: usize) -> String {
    let lines: Vec<&str> = text.lines().take(line_of(text, at)).collect();
    let header = |line: &&str| {
        let name = line.trim_start().strip_prefix('[')?;
        let name = name.split(']').next()?.trim_matches(['[', ' ', '\t']);
        Some(name.to_owned())
    };
    let table = lines.iter().rev().find_map(header);
    // A header line has no key, whatever its comment contains.
    let last = lines.last().filter(|line| header(line).is_none());
    let key = last
        .and_then(|line| line.split_once('='))
        .map(|(key, _)| key.trim().to_owned());
    let parts = [table, key].into_iter().flatten();
    parts.collect::<Vec<_>>().join(".")
}

/// One line, without control characters that a terminal would obey.
fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(shown).collect()
}
