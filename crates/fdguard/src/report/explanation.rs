//! The explanation of a log, as text and JSON.

use std::collections::BTreeMap;
use std::io::Write;

use fdguard_core::explain::{
    Certainty, EXPLANATION_SCHEMA, Explanation, LogVerdict, SymptomMatch, UncountedSymptom,
    WallName,
};
use fdguard_core::playbook::Advice;
use fdguard_core::snapshot::{Limits, Process};
use fdguard_core::summary::{ClassCount, TargetCount};
use fdguard_core::wall::Wall;
use fdguard_core::{Class, Gap, Snapshot, Summary, Text, Tier, command_line};
use serde::Serialize;

use super::document::{Block, Note, NotePart, Section};
use super::playbook::write_sentences;
use super::style::{self, CRITICAL, DIM, HEADING, paint};
use super::table::Side::{Left, Right};
use super::table::{class_name, columns, counted, cut, known, thousands};
use super::text::TextWriter;
use crate::terminal::{sanitize, sanitize_str};

/// How many classes and targets of the holder are shown.
const TOP: usize = 5;

/// The process in question, and the playbook's advice.
#[derive(Debug)]
pub struct ExplainedProcess {
    /// What was seen of it.
    pub snapshot: Snapshot,
    /// What that means.
    pub summary: Summary,
    /// The suspicious class and the playbook's advice for it.
    pub advice: Option<(Class, Advice)>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    /// Name of the log; absent for standard input.
    log: Option<&'a Text>,
    #[serde(flatten)]
    explanation: &'a Explanation,
    held_by: Option<Holder<'a>>,
}

#[derive(Serialize)]
struct Holder<'a> {
    tier: Tier,
    process: &'a Process,
    count: Option<u64>,
    limits: Limits,
    percent_of_soft: Option<f64>,
    highest: Option<u64>,
    walls: &'a [Wall],
    classes: Option<&'a [ClassCount]>,
    targets: Option<Vec<&'a TargetCount>>,
    suspect: Option<&'a Class>,
    advice: Option<&'a Advice>,
    gaps: &'a [Gap],
}

impl<'a> Holder<'a> {
    fn of(held: &'a ExplainedProcess) -> Self {
        let ExplainedProcess {
            snapshot, summary, ..
        } = held;
        let targets = summary.targets.as_ref();
        Self {
            tier: snapshot.tier,
            process: &snapshot.process,
            count: snapshot.count,
            limits: snapshot.limits,
            percent_of_soft: summary.percent_of_soft,
            highest: summary.highest,
            walls: &summary.walls,
            classes: summary.classes.as_deref(),
            targets: targets.map(|rows| rows.iter().take(4 * TOP).collect()),
            suspect: held.advice.as_ref().map(|(class, _)| class),
            advice: held.advice.as_ref().map(|(_, advice)| advice),
            gaps: &snapshot.gaps,
        }
    }
}

/// Writes one JSON document.
pub fn write_json(
    out: &mut dyn Write,
    log: Option<&Text>,
    explanation: &Explanation,
    held: Option<&ExplainedProcess>,
) -> anyhow::Result<()> {
    let document = Document {
        schema: EXPLANATION_SCHEMA,
        log,
        explanation,
        held_by: held.map(Holder::of),
    };
    super::json::write_line(out, &document)
}

/// Writes the verdict, then the symptoms, then the process that has the descriptors open.
pub fn write(
    out: &mut dyn Write,
    explanation: &Explanation,
    held: Option<&ExplainedProcess>,
    width: Option<usize>,
) -> anyhow::Result<()> {
    write_verdict(out, explanation, width)?;
    let fill = |sentence: &str| match held {
        Some(held) => command_line::with_pid(sentence, held.snapshot.process.pid),
        None => sentence.to_owned(),
    };
    let sections = sections(explanation, fill);
    TextWriter { out, width }.sections(&sections)?;
    match held {
        Some(held) => write_holder(out, held, width, fill),
        None => Ok(()),
    }
}

fn write_verdict(
    out: &mut dyn Write,
    explanation: &Explanation,
    width: Option<usize>,
) -> anyhow::Result<()> {
    let read = counted(explanation.lines_read, "line");
    match explanation.verdict {
        LogVerdict::Empty => writeln!(out, "the log is empty")?,
        LogVerdict::Nothing => {
            let seen: u64 = explanation
                .not_counted
                .iter()
                .map(|row| row.found.count)
                .sum();
            let but = match seen {
                0 => String::new(),
                seen => format!("; {} of them not counted, see below", thousands(seen)),
            };
            writeln!(
                out,
                "no line reports descriptor exhaustion ({read} read{but})"
            )?;
        }
        LogVerdict::Descriptors | LogVerdict::OtherWall => {
            for (wall, rows) in by_wall(&explanation.symptoms) {
                let head = paint(CRITICAL, headline(wall, &rows));
                writeln!(out, "{head}{}", first_of(&rows, width))?;
            }
            writeln!(out, "  {}", paint(DIM, format!("{read} read")))?;
        }
    }
    Ok(())
}

/// Symptoms by limit, those of descriptors first.
fn by_wall(symptoms: &[SymptomMatch]) -> BTreeMap<WallName, Vec<&SymptomMatch>> {
    let mut walls: BTreeMap<WallName, Vec<&SymptomMatch>> = BTreeMap::new();
    for found in symptoms {
        walls.entry(found.wall).or_default().push(found);
    }
    walls
}

/// Counts the lines that report it and, separately, those that may mean it.
fn headline(wall: WallName, rows: &[&SymptomMatch]) -> String {
    let total = |least: Certainty| -> u64 {
        let rows = rows.iter().filter(|found| found.certainty >= least);
        rows.map(|found| found.count).sum()
    };
    let (all, sure) = (total(Certainty::Possible), total(Certainty::Likely));
    let what = what_ran_out(wall);
    if sure == 0 {
        return format!("{} may mean that {what}", counted(all, "line"));
    }
    let verb = match (total(Certainty::Certain), sure) {
        (0, 1) => "probably means",
        (0, _) => "probably mean",
        (_, 1) => "reports",
        (_, _) => "report",
    };
    let more = match all - sure {
        0 => String::new(),
        more => format!(", and {} more may mean it", thousands(more)),
    };
    let lines = counted(sure, "line");
    format!("{lines} {verb} that {what}{more}")
}

fn what_ran_out(wall: WallName) -> &'static str {
    match wall {
        WallName::SoftLimit => "descriptors ran out",
        WallName::SystemFiles => "the machine ran out of open files",
        WallName::Select1024 => "a descriptor number was too high for select()",
        WallName::InotifyInstances => "inotify instances ran out, not descriptors",
        WallName::InotifyWatches => "inotify watches ran out, not descriptors",
        WallName::Ptys => "pseudo-terminals ran out",
        WallName::Tasks => "processes or threads ran out, not descriptors",
        WallName::None => "nothing ran out",
    }
}

/// The earliest of the most certain lines: a doubtful one proves nothing to the reader.
fn first_of(rows: &[&SymptomMatch], width: Option<usize>) -> String {
    let surest = rows.iter().map(|found| found.certainty).max();
    let rows = rows.iter().filter(|found| Some(found.certainty) == surest);
    let Some(first) = rows.min_by_key(|found| found.first_line) else {
        return String::new();
    };
    let example = sanitize(&first.example);
    let example = match width {
        Some(width) => cut(example.trim(), width),
        None => example.trim().to_owned(),
    };
    format!(", first at line {}: {example}", thousands(first.first_line))
}

fn sections(explanation: &Explanation, fill: impl Fn(&str) -> String) -> Vec<Section> {
    let symptoms = &explanation.symptoms;
    let table = Some(table(symptoms)).filter(|_| !symptoms.is_empty());
    let meanings = symptoms.iter().map(|found| {
        let text = format!(
            "{}: {}",
            sanitize_str(&found.id),
            sanitize_str(&found.meaning)
        );
        let next = sanitize_str(&fill(&found.next)).into_owned();
        Block::note(None, text, None, vec![("next", next)])
    });
    let not_counted = explanation.not_counted.iter().map(not_counted);
    [
        Section::of("symptoms", table.into_iter().collect()),
        Section::of("meaning", meanings.collect()),
        Section::of("not counted", not_counted.collect()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn table(found: &[SymptomMatch]) -> Block {
    let rows = found.iter().map(|found| {
        vec![
            thousands(found.count),
            lines(found),
            found.wall.name().to_owned(),
            found.certainty.name().to_owned(),
            sanitize_str(&found.id).into_owned(),
        ]
    });
    Block::table(
        &[
            ("COUNT", Right),
            ("LINES", Left),
            ("LIMIT", Left),
            ("CERTAINTY", Left),
            ("SYMPTOM", Left),
        ],
        rows,
    )
}

fn lines(found: &SymptomMatch) -> String {
    if found.first_line == found.last_line {
        return thousands(found.first_line);
    }
    let (first, last) = (thousands(found.first_line), thousands(found.last_line));
    format!("{first}–{last}")
}

fn not_counted(UncountedSymptom { found, why }: &UncountedSymptom) -> Block {
    let count = counted(found.count, "line");
    let id = sanitize_str(&found.id);
    let meaning = sanitize_str(&found.meaning).into_owned();
    Block::Note(Note {
        text: format!("{id}: {count} ({}), {why}", lines(found)),
        more: vec![NotePart::Sentence(meaning)],
        ..Note::default()
    })
}

fn write_holder(
    out: &mut dyn Write,
    held: &ExplainedProcess,
    width: Option<usize>,
    fill: impl Fn(&str) -> String,
) -> anyhow::Result<()> {
    let ExplainedProcess {
        snapshot, summary, ..
    } = held;
    let share = match summary.percent_of_soft {
        Some(percent) => paint(style::share(percent), format!(" ({percent} %)")),
        None => String::new(),
    };
    TextWriter { out, width }.heading("open in")?;
    writeln!(
        out,
        "  {} (pid {}): {} of {} descriptors{share}, highest fd {}",
        paint(HEADING, sanitize(&snapshot.process.comm)),
        snapshot.process.pid,
        known(snapshot.count),
        known(snapshot.limits.soft),
        known(summary.highest),
    )?;
    let sides = [Right, Left, Left];
    let room = width.map(|width| width.saturating_sub(4));
    for line in columns(&held_rows(summary), &sides, room) {
        writeln!(out, "    {line}")?;
    }
    if let Some((class, advice)) = &held.advice {
        let about = format!("advice for {}", class_name(class));
        let id = paint(DIM, format!("[{}]", sanitize_str(&advice.id)));
        writeln!(out, "{} {id}", paint(HEADING, about))?;
        write_sentences(out, advice, "  ", fill)?;
    }
    TextWriter { out, width }.sections(Section::gaps(&snapshot.gaps).as_slice())
}

/// The largest classes, each with its most frequent target.
fn held_rows(summary: &Summary) -> Vec<Vec<String>> {
    let classes = summary.classes.as_deref().unwrap_or_default();
    let rows = classes.iter().take(TOP).map(|row| {
        let mut targets = summary.targets.iter().flatten();
        let target = targets.find(|target| target.class == row.class);
        let target = target.map_or_else(String::new, |target| {
            let shown = if target.same {
                &target.example
            } else {
                &target.target
            };
            format!("×{} {}", thousands(target.count), sanitize(shown))
        });
        vec![thousands(row.count), class_name(&row.class), target]
    });
    rows.collect()
}
