//! The file format of a playbook, and its errors.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use super::{Advice, Playbook};
use crate::class_pattern::ClassPattern;
use crate::explain::{Certainty, LinePattern, Symptom, WallName};
use crate::glob::Glob;

/// What is wrong with a playbook, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaybookError {
    /// The line, from 1.
    pub line: Option<usize>,
    /// The id of the entry.
    pub entry: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for PlaybookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(entry) = &self.entry {
            write!(f, "entry {entry:?}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for PlaybookError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    ignore: Several,
    #[serde(default)]
    advice: Vec<AdviceEntry>,
    #[serde(default)]
    symptom: Vec<SymptomEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdviceEntry {
    id: Spanned<String>,
    #[serde(default)]
    class: Several,
    #[serde(default)]
    target: Several,
    #[serde(default)]
    with: Several,
    #[serde(default)]
    comm: Several,
    #[serde(default)]
    exe: Several,
    #[serde(default)]
    topic: Several,
    source: String,
    confirm: String,
    fix: String,
    #[serde(default)]
    incidents: Several,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SymptomEntry {
    id: Spanned<String>,
    patterns: Several,
    #[serde(default)]
    unless: Several,
    wall: WallName,
    certainty: Certainty,
    #[serde(default)]
    at_least: Option<u64>,
    meaning: String,
    next: String,
}

/// One string, or a list of them: people write `class = "pipe"`.
#[derive(Default)]
struct Several(Vec<String>);

impl<'de> Deserialize<'de> for Several {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SeveralVisitor)
    }
}

struct SeveralVisitor;

impl<'de> Visitor<'de> for SeveralVisitor {
    type Value = Several;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list of strings")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Several, E> {
        Ok(Several(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Several, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push(text);
        }
        Ok(Several(texts))
    }
}

/// Reads a file and checks what the format alone does not guarantee.
pub(super) fn read(text: &str) -> Result<Playbook, PlaybookError> {
    let file: File = toml::from_str(text).map_err(|error| from_toml(text, &error))?;
    let place = Place { text };
    let ignore = patterns(&file.ignore).map_err(|message| PlaybookError {
        line: None,
        entry: None,
        message: format!("ignore: {message}"),
    })?;
    let mut seen = HashSet::new();
    let mut advice = Vec::with_capacity(file.advice.len());
    for entry in file.advice {
        place.check_id(&entry.id, &mut seen)?;
        let id = entry.id.clone();
        advice.push(to_advice(entry).map_err(|message| place.complain(&id, message))?);
    }
    seen.clear();
    let mut symptoms = Vec::with_capacity(file.symptom.len());
    for entry in file.symptom {
        place.check_id(&entry.id, &mut seen)?;
        let id = entry.id.clone();
        symptoms.push(to_symptom(entry).map_err(|message| place.complain(&id, message))?);
    }
    Ok(Playbook {
        advice,
        symptoms,
        ignore,
    })
}

fn to_advice(entry: AdviceEntry) -> Result<Advice, String> {
    if entry.class.0.is_empty() && entry.topic.0.is_empty() {
        return Err("needs class or topic, otherwise nothing selects it".to_owned());
    }
    not_empty("source", &entry.source)?;
    not_empty("confirm", &entry.confirm)?;
    not_empty("fix", &entry.fix)?;
    let globs = |list: Several| list.0.into_iter().map(Glob::from).collect();
    Ok(Advice {
        id: entry.id.into_inner(),
        class: classes(&entry.class)?,
        target: globs(entry.target),
        with: classes(&entry.with)?,
        comm: globs(entry.comm),
        exe: globs(entry.exe),
        topic: entry.topic.0,
        source: entry.source,
        confirm: entry.confirm,
        fix: entry.fix,
        incidents: entry.incidents.0,
        layer: 0,
    })
}

fn to_symptom(entry: SymptomEntry) -> Result<Symptom, String> {
    not_empty("meaning", &entry.meaning)?;
    not_empty("next", &entry.next)?;
    if entry.patterns.0.is_empty() {
        return Err("needs at least one pattern".to_owned());
    }
    Ok(Symptom {
        id: entry.id.into_inner(),
        patterns: patterns(&entry.patterns)?,
        unless: patterns(&entry.unless)?,
        wall: entry.wall,
        certainty: entry.certainty,
        at_least: entry.at_least.unwrap_or(1).max(1),
        meaning: entry.meaning,
        next: entry.next,
    })
}

fn not_empty(name: &str, sentence: &str) -> Result<(), String> {
    if sentence.trim().is_empty() {
        return Err(format!("{name} must not be empty"));
    }
    Ok(())
}

fn patterns(texts: &Several) -> Result<Vec<LinePattern>, String> {
    texts
        .0
        .iter()
        .map(|text| LinePattern::parse(text))
        .collect()
}

fn classes(names: &Several) -> Result<Vec<ClassPattern>, String> {
    names
        .0
        .iter()
        .map(|name| {
            name.parse::<ClassPattern>()
                .map_err(|error| error.to_string())
        })
        .collect()
}

/// Finds lines in the text that was read.
struct Place<'a> {
    text: &'a str,
}

impl Place<'_> {
    fn check_id(
        &self,
        id: &Spanned<String>,
        seen: &mut HashSet<String>,
    ) -> Result<(), PlaybookError> {
        if !is_kebab_case(id.get_ref()) {
            let message = "id must consist of lower-case letters, digits and single hyphens";
            return Err(self.complain(id, message.to_owned()));
        }
        if !seen.insert(id.get_ref().clone()) {
            return Err(self.complain(id, "duplicate id".to_owned()));
        }
        Ok(())
    }

    fn complain(&self, id: &Spanned<String>, message: String) -> PlaybookError {
        PlaybookError {
            line: Some(line_at(self.text, id.span().start)),
            entry: Some(id.get_ref().clone()),
            message,
        }
    }
}

fn is_kebab_case(id: &str) -> bool {
    id.split('-').all(|word| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !word.is_empty() && word.bytes().all(fits)
    })
}

fn from_toml(text: &str, error: &toml::de::Error) -> PlaybookError {
    let span = error.span();
    PlaybookError {
        line: span.as_ref().map(|span| line_at(text, span.start)),
        entry: span.and_then(|span| id_around(text, &span)),
        message: error.message().replace('\n', ", "),
    }
}

fn line_at(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// The id of the entry around a position, taken from the raw text because it could not be parsed.
fn id_around(text: &str, span: &Range<usize>) -> Option<String> {
    let line_end = text.get(span.start..)?.find('\n');
    let line_end = line_end.map_or(text.len(), |at| span.start + at);
    let entry_start = text.get(..line_end)?.rfind("[[")?;
    let entry = text.get(entry_start..)?;
    let entry_end = entry[2..].find("\n[[").map_or(entry.len(), |at| at + 2);
    let id = entry[..entry_end].lines().find_map(|line| {
        let value = line.trim().strip_prefix("id")?.trim_start();
        let value = value.strip_prefix('=')?.trim();
        value.strip_prefix('"')?.split('"').next()
    })?;
    (!id.is_empty()).then(|| id.to_owned())
}
