//! The playbook for people and programs.

use std::io::Write;

use fdguard_core::Class;
use fdguard_core::class_pattern::ClassPattern;
use fdguard_core::explain::{LinePattern, Symptom};
use fdguard_core::glob::Glob;
use fdguard_core::playbook::{Advice, PLAYBOOK_SCHEMA, Playbook};
use serde::Serialize;

use super::style::{DIM, HEADING, paint};
use crate::terminal::sanitize_str;

/// The part of a playbook to show.
#[derive(Debug)]
pub struct PlaybookSelection<'a> {
    advice: Vec<&'a Advice>,
    symptoms: Vec<&'a Symptom>,
}

impl<'a> PlaybookSelection<'a> {
    /// Everything.
    #[must_use]
    pub fn all(playbook: &'a Playbook) -> Self {
        Self {
            advice: playbook.advice().iter().collect(),
            symptoms: playbook.symptoms().iter().collect(),
        }
    }

    /// The advice for a class, the general one first.
    #[must_use]
    pub fn about(playbook: &'a Playbook, class: &Class) -> Self {
        Self {
            advice: playbook.about(class),
            symptoms: Vec::new(),
        }
    }

    /// Entries that contain this word.
    #[must_use]
    pub fn with(playbook: &'a Playbook, word: &str) -> Self {
        let lower = word.to_lowercase();
        let has = |symptom: &&Symptom| {
            let patterns = symptom.patterns.iter().map(LinePattern::as_str);
            let sentences = [&symptom.id, &symptom.meaning, &symptom.next];
            let mut texts = patterns.chain(sentences.map(String::as_str));
            texts.any(|text| text.to_lowercase().contains(&lower))
        };
        Self {
            advice: playbook.search(word),
            symptoms: playbook.symptoms().iter().filter(has).collect(),
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    advice: &'a [&'a Advice],
    symptoms: &'a [&'a Symptom],
}

/// Writes one JSON document.
pub fn write_json(out: &mut dyn Write, listed: &PlaybookSelection<'_>) -> anyhow::Result<()> {
    let document = Document {
        schema: PLAYBOOK_SCHEMA,
        advice: &listed.advice,
        symptoms: &listed.symptoms,
    };
    super::json::write_line(out, &document)
}

/// Writes the entries one by one.
pub fn write(out: &mut dyn Write, listed: &PlaybookSelection<'_>) -> anyhow::Result<()> {
    if listed.advice.is_empty() && listed.symptoms.is_empty() {
        writeln!(out, "the playbook has no entry for that")?;
    }
    for advice in &listed.advice {
        let when = paint(DIM, sanitize_str(&when(advice)));
        writeln!(out, "{}  {when}", paint(HEADING, &advice.id))?;
        write_sentences(out, advice, "  ", str::to_owned)?;
        if !advice.incidents.is_empty() {
            let seen = sanitize_str(&advice.incidents.join(", ")).into_owned();
            writeln!(out, "  {}", paint(DIM, format!("seen in: {seen}")))?;
        }
    }
    for symptom in &listed.symptoms {
        let about = format!(
            "limit {}, {}",
            symptom.wall.name(),
            symptom.certainty.name()
        );
        writeln!(
            out,
            "{}  {}",
            paint(HEADING, &symptom.id),
            paint(DIM, about)
        )?;
        let patterns: Vec<&str> = symptom.patterns.iter().map(LinePattern::as_str).collect();
        writeln!(out, "  lines: {}", sanitize_str(&patterns.join(" | ")))?;
        writeln!(out, "  meaning: {}", sanitize_str(&symptom.meaning))?;
        writeln!(out, "  next: {}", sanitize_str(&symptom.next))?;
    }
    Ok(())
}

/// The three sentences of an entry; `fill` may insert a pid.
pub(super) fn write_sentences(
    out: &mut dyn Write,
    advice: &Advice,
    indent: &str,
    fill: impl Fn(&str) -> String,
) -> anyhow::Result<()> {
    let sentences = [
        ("likely source", &advice.source),
        ("confirm", &advice.confirm),
        ("fix", &advice.fix),
    ];
    for (name, sentence) in sentences {
        writeln!(out, "{indent}{name}: {}", sanitize_str(&fill(sentence)))?;
    }
    Ok(())
}

/// The conditions of an entry, as text.
fn when(advice: &Advice) -> String {
    let classes = |list: &[ClassPattern], between: &str| {
        let names: Vec<&str> = list.iter().map(ClassPattern::as_str).collect();
        names.join(between)
    };
    let globs = |list: &[Glob]| {
        let names: Vec<&str> = list.iter().map(Glob::as_str).collect();
        names.join(", ")
    };
    let mut conditions = Vec::new();
    let mut add = |name: &str, text: String| {
        if !text.is_empty() {
            conditions.push(format!("{name} {text}"));
        }
    };
    add("class", classes(&advice.class, ", "));
    add("target", globs(&advice.target));
    add("with", classes(&advice.with, " and "));
    let who: Vec<Glob> = advice.comm.iter().chain(&advice.exe).cloned().collect();
    add("of", globs(&who));
    add("topic", advice.topic.join(", "));
    conditions.join("; ")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use fdguard_core::playbook::Playbook;

    use crate::cli::Cli;

    /// The fdguard commands between backticks.
    fn commands(text: &str) -> impl Iterator<Item = &str> {
        let quoted = text.split('`').skip(1).step_by(2);
        quoted.filter(|text| text.starts_with("fdguard "))
    }

    #[test]
    fn every_command_that_is_advised_is_one_that_there_is() {
        let playbook = Playbook::embedded();
        let advice = playbook.advice().iter();
        let advice = advice.flat_map(|advice| [&advice.source, &advice.confirm, &advice.fix]);
        let symptoms = playbook.symptoms().iter();
        let symptoms = symptoms.flat_map(|symptom| [&symptom.meaning, &symptom.next]);
        let mut count = 0;
        for command in advice.chain(symptoms).flat_map(|text| commands(text)) {
            count += 1;
            let words = command.replace("PID", "1");
            let parsed = Cli::try_parse_from(words.split_whitespace());
            assert!(parsed.is_ok(), "{command}: {parsed:?}");
        }
        assert!(count > 60, "only {count} commands found");
    }
}
