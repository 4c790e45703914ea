//! Configuration files in TOML: every value has a place, every mistake names it, and every
//! effective value has a source. All of fdguard's files are read through this module: the settings
//! (`fdguard.toml`), the services of `run`, the scenario of `check` and the playbook.

use std::fmt::{self, Write as _};
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error as TomlError};

/// A position in a file, both from 1; the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePosition {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl FilePosition {
    /// The position of these bytes of the text.
    #[must_use]
    pub fn from_span(text: &str, span: &Range<usize>) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let last = before.rsplit('\n').next().unwrap_or_default();
        Self {
            line: 1 + before.matches('\n').count(),
            column: 1 + last.chars().count(),
        }
    }
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

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

/// What is wrong, and where, in one line. A file with a mistake is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMistake {
    /// The file, if the mistake is in one and its name is known.
    pub file: Option<String>,
    /// Where in the file.
    pub place: Option<FilePosition>,
    /// The key with its table, such as `levels.warning`, or the entry; empty if the message names
    /// it.
    pub key: String,
    /// What is wrong with it.
    pub message: String,
}

impl ConfigMistake {
    /// A mistake in a value from this source.
    pub fn new(source: ValueSource, key: impl Into<String>, message: impl fmt::Display) -> Self {
        let place = match source {
            ValueSource::File(place) => Some(place),
            _ => None,
        };
        Self {
            file: None,
            place,
            key: printable(&key.into()),
            message: printable(&message.to_string()),
        }
    }

    /// The same with the name of the file, if it is in one.
    #[must_use]
    pub fn in_file(self, name: impl Into<String>) -> Self {
        let file = self.place.is_some().then(|| name.into());
        Self { file, ..self }
    }

    /// Whether it is in a file, and not on the command line.
    #[must_use]
    pub fn is_in_file(&self) -> bool {
        self.place.is_some()
    }
}

impl fmt::Display for ConfigMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        if let Some(place) = self.place {
            write!(f, "{place}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigMistake {}

/// One line, without control characters that a terminal would obey.
fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.trim_end().chars().map(shown).collect()
}

/// The text of a file, to name the places of its values.
#[derive(Clone, Copy, Debug)]
pub struct FileText<'t>(pub &'t str);

impl<'t> FileText<'t> {
    /// Reads the whole file. Unknown keys and wrong types are mistakes at their place.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, ConfigMistake> {
        self.read_named(
            |text, at, message| match message.starts_with("unknown field") {
                true => String::new(),
                false => key_at(text, at),
            },
        )
    }

    /// The same, with another way to name what a position is about.
    pub(crate) fn read_named<T: DeserializeOwned>(
        self,
        name: impl Fn(&str, usize, &str) -> String,
    ) -> Result<T, ConfigMistake> {
        toml::from_str(self.0).map_err(|error| self.toml_mistake(&error, name))
    }

    /// Parses it without an expectation of its keys.
    pub fn table(self) -> Result<Spanned<DeTable<'t>>, ConfigMistake> {
        DeTable::parse(self.0).map_err(|error| self.toml_mistake(&error, |_, _, _| String::new()))
    }

    /// Every value of the file in its order, for a list of sources.
    pub fn values(self) -> Result<Vec<LocatedValue>, ConfigMistake> {
        let mut values = Vec::new();
        for (name, value) in self.table()?.get_ref().iter() {
            self.collect(name.get_ref().to_string(), value, &mut values);
        }
        values.sort_by_key(|value| (value.place.line, value.place.column));
        Ok(values)
    }

    fn collect(self, key: String, value: &Spanned<DeValue<'_>>, values: &mut Vec<LocatedValue>) {
        let is_table = |item: &Spanned<DeValue<'_>>| matches!(item.get_ref(), DeValue::Table(_));
        let texts = match value.get_ref() {
            DeValue::Table(table) => {
                for (name, value) in table {
                    self.collect(format!("{key}.{}", name.get_ref()), value, values);
                }
                return;
            }
            DeValue::Array(items) if items.iter().any(is_table) => {
                for (at, item) in items.iter().enumerate() {
                    self.collect(format!("{key}[{at}]"), item, values);
                }
                return;
            }
            DeValue::Array(items) => items.iter().map(|item| written(item.get_ref())).collect(),
            one => vec![written(one)],
        };
        let place = FilePosition::from_span(self.0, &value.span());
        values.push(LocatedValue { key, texts, place });
    }

    fn toml_mistake(
        self,
        error: &TomlError,
        name: impl Fn(&str, usize, &str) -> String,
    ) -> ConfigMistake {
        let span = error.span().unwrap_or(0..0);
        let key = name(self.0, span.start, error.message());
        ConfigMistake::new(self.source(&span), key, error.message())
    }

    /// The source of what these bytes say.
    #[must_use]
    pub fn source(self, span: &Range<usize>) -> ValueSource {
        ValueSource::File(FilePosition::from_span(self.0, span))
    }

    /// A mistake in this value.
    pub fn mistake<T>(
        self,
        value: &Spanned<T>,
        key: &str,
        message: impl fmt::Display,
    ) -> ConfigMistake {
        ConfigMistake::new(self.source(&value.span()), key, message)
    }
}

/// A value of a file, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedValue {
    /// Its key with its tables: `levels.warning`, `exercise[0].cycles`.
    pub key: String,
    /// Its text, or the texts of a list.
    pub texts: Vec<String>,
    /// Where it is.
    pub place: FilePosition,
}

fn written(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(is_on) => is_on.to_string(),
        DeValue::Datetime(moment) => moment.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => "…".to_owned(),
    }
}

/// The key set on the line of this position, after the name of its table. Read from the raw text,
/// because what is wrong could not be parsed.
fn key_at(text: &str, at: usize) -> String {
    let lines: Vec<&str> = text
        .lines()
        .take(FilePosition::from_span(text, &(at..at)).line)
        .collect();
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

/// What `--explain` prints: effective values as the lines of a file, each with its source.
#[derive(Clone, Debug)]
pub struct SourceList<'f> {
    /// The name of the file that positions belong to.
    file: &'f str,
    text: String,
}

impl<'f> SourceList<'f> {
    /// An empty list for this file.
    #[must_use]
    pub fn new(file: Option<&'f str>) -> Self {
        Self {
            file: file.unwrap_or("file"),
            text: String::new(),
        }
    }

    /// Begins a table.
    pub fn table(&mut self, header: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "\n{header}\n");
    }

    /// Adds a value with its source; `flag` is how the command line names it.
    pub fn value(&mut self, key: &str, texts: &[String], source: ValueSource, flag: &str) {
        let shown = match texts {
            [one] => format!("{one:?}"),
            several => format!("{several:?}"),
        };
        let source = match source {
            ValueSource::Default => "default".to_owned(),
            ValueSource::File(place) => format!("{}:{}", self.file, place.line),
            ValueSource::Flag => flag.to_owned(),
            ValueSource::Environment(name) => format!("environment {name}"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{:<40} # {source}", format!("{key} = {shown}"));
    }

    /// Adds a value of the file.
    pub fn located(&mut self, value: &LocatedValue) {
        self.value(&value.key, &value.texts, ValueSource::File(value.place), "");
    }

    /// The lines.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;
    use toml::Spanned;

    use super::{ConfigMistake, FilePosition, FileText, SourceList, ValueSource};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        levels: Levels,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Levels {
        warning: Spanned<u32>,
    }

    #[test]
    fn a_mistake_names_its_place_and_its_key() {
        let said = |text: &str| FileText(text).read::<File>().unwrap_err().to_string();
        let unknown = said("[levels]\nwarnings = 70");
        assert!(
            unknown.starts_with("line 2, column 1: unknown field `warnings`"),
            "{unknown}"
        );
        let kind = said("# mine\n[levels]\nwarning = \"70\"");
        assert!(
            kind.starts_with("line 3, column 11: levels.warning: invalid type"),
            "{kind}"
        );
        let missing = said("[levels] # warning = 3\n");
        assert_eq!(missing, "line 1, column 1: levels: missing field `warning`");
        assert!(said("[levels").starts_with("line 1, column "));
        assert!(FileText("a = 1\nb = [").table().is_err());
    }

    #[test]
    fn a_column_counts_characters() {
        let text = "name = \"é\" # ü\nkey = \"ß\", 3";
        let at = text.find('3').unwrap();
        let place = FilePosition::from_span(text, &(at..at + 1));
        assert_eq!(place.to_string(), "line 2, column 12");
    }

    #[test]
    fn a_value_is_located_and_a_flag_is_in_no_file() {
        let text = "[levels]\nwarning = 70";
        let file: File = FileText(text).read().unwrap();
        let mistake = FileText(text).mistake(&file.levels.warning, "levels.warning", "too\nhigh");
        let mistake = mistake.in_file("a.toml");
        assert_eq!(
            mistake.to_string(),
            "a.toml: line 2, column 11: levels.warning: too high"
        );
        let flag = ConfigMistake::new(ValueSource::Flag, "--warn-at", "too high").in_file("a.toml");
        assert_eq!(flag.to_string(), "--warn-at: too high");
    }

    #[test]
    fn values_are_listed_with_their_sources() {
        let mut list = SourceList::new(Some("a.toml"));
        let place = FilePosition { line: 3, column: 1 };
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        list.value(
            "limit",
            &texts(&["64"]),
            ValueSource::File(place),
            "--limit",
        );
        list.table("[[exercise]]");
        list.value("cycles", &texts(&["30"]), ValueSource::Flag, "--cycles");
        list.value("allow", &texts(&[]), ValueSource::Default, "--allow");
        let lines: Vec<String> = list
            .into_text()
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "limit = \"64\" # a.toml:3",
                "",
                "[[exercise]]",
                "cycles = \"30\" # --cycles",
                "allow = [] # default",
            ]
        );
    }

    #[test]
    fn every_value_of_a_file_is_found_with_its_key() {
        let text = "a = [1, 2]\n[t]\nb = 2026-01-31\n[[e]]\nname = \"x\"\n[[e]]\nname = \"y\"";
        let values = FileText(text).values().unwrap();
        let found: Vec<String> = values
            .iter()
            .map(|value| {
                format!(
                    "{} {} {}",
                    value.key,
                    value.texts.join("+"),
                    value.place.line
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                "a 1+2 1",
                "t.b 2026-01-31 3",
                "e[0].name x 5",
                "e[1].name y 7"
            ]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_errors_are_one_line(text: String) {
            drop(FileText(&text).values());
            if let Err(error) = FileText(&text).read::<File>() {
                prop_assert!(!error.to_string().contains(char::is_control));
                let place = error.place.unwrap();
                prop_assert!(place.line <= text.matches('\n').count() + 1);
            }
        }
    }
}
