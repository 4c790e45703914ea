//! The file format of a playbook, and its errors.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use super::{Advice, Playbook};
use crate::class_pattern::ClassPattern;
use crate::explain::{Certainty, LinePattern, Symptom, WallName};
use crate::glob::Glob;
use crate::located::{ConfigMistake, FileText};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "nothing")]
    ignore: Spanned<Several>,
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

fn nothing() -> Spanned<Several> {
    Spanned::new(0..0, Several::default())
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
pub(super) fn read(text: &str) -> Result<Playbook, ConfigMistake> {
    let place = FileText(text);
    let file: File = place.read_named(|text, at, _| entry_around(text, at))?;
    let ignore = patterns(file.ignore.get_ref());
    let ignore = ignore.map_err(|message| place.mistake(&file.ignore, "ignore", message))?;
    let mut seen = HashSet::new();
    let mut advice = Vec::with_capacity(file.advice.len());
    for entry in file.advice {
        check_id(place, &entry.id, &mut seen)?;
        let id = entry.id.clone();
        advice.push(to_advice(entry).map_err(|message| complain(place, &id, message))?);
    }
    seen.clear();
    let mut symptoms = Vec::with_capacity(file.symptom.len());
    for entry in file.symptom {
        check_id(place, &entry.id, &mut seen)?;
        let id = entry.id.clone();
        symptoms.push(to_symptom(entry).map_err(|message| complain(place, &id, message))?);
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

fn check_id(
    place: FileText<'_>,
    id: &Spanned<String>,
    seen: &mut HashSet<String>,
) -> Result<(), ConfigMistake> {
    if !is_kebab_case(id.get_ref()) {
        let message = "id must consist of lower-case letters, digits and single hyphens";
        return Err(complain(place, id, message));
    }
    if !seen.insert(id.get_ref().clone()) {
        return Err(complain(place, id, "duplicate id"));
    }
    Ok(())
}

fn complain(
    place: FileText<'_>,
    id: &Spanned<String>,
    message: impl fmt::Display,
) -> ConfigMistake {
    place.mistake(id, &format!("entry {:?}", id.get_ref()), message)
}

fn is_kebab_case(id: &str) -> bool {
    id.split('-').all(|word| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !word.is_empty() && word.bytes().all(fits)
    })
}

/// `entry "ID"` for the entry around a position, taken from the raw text because it could not be
/// parsed; empty if there is none.
fn entry_around(text: &str, at: usize) -> String {
    id_around(text, at).map_or_else(String::new, |id| format!("entry {id:?}"))
}

fn id_around(text: &str, at: usize) -> Option<&str> {
    let line_end = text.get(at..)?.find('\n');
    let line_end = line_end.map_or(text.len(), |end| at + end);
    let entry_start = text.get(..line_end)?.rfind("[[")?;
    let entry = text.get(entry_start..)?;
    let entry_end = entry[2..].find("\n[[").map_or(entry.len(), |at| at + 2);
    let id = entry[..entry_end].lines().find_map(|line| {
        let value = line.trim().strip_prefix("id")?.trim_start();
        let value = value.strip_prefix('=')?.trim();
        value.strip_prefix('"')?.split('"').next()
    })?;
    (!id.is_empty()).then_some(id)
}
