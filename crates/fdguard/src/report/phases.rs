//! Phases for people and programs: each step, then whether the last returns to the first.

use std::io::Write;

use anstyle::Style;
use fdguard_core::Snapshot;
use fdguard_core::phases::{PhaseGroup, PhaseStep, Phases, Return};
use fdguard_core::snapshot::Process;
use fdguard_core::units::{duration, plural};
use jiff::Timestamp;
use serde::Serialize;

use super::host::cell;
use super::style::{ADDED, DIM, HEADING, REMOVED, WARNING, paint};
use super::table::{class_name, counted};
use crate::terminal::{sanitize, sanitize_str};

/// A longer list of numbers is not readable.
const NUMBERS: usize = 12;

/// A snapshot with the name of its phase.
#[derive(Clone, Debug)]
pub struct NamedPhase {
    /// The user's name for it, or the name of the file.
    pub name: String,
    /// What was seen.
    pub snapshot: Snapshot,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    process: &'a Process,
    phases: Vec<Moment<'a>>,
    #[serde(flatten)]
    found: &'a Phases,
}

#[derive(Serialize)]
struct Moment<'a> {
    name: &'a str,
    taken_at: Timestamp,
    count: Option<u64>,
}

/// Writes one JSON document.
pub fn write_json(
    out: &mut dyn Write,
    phases: &[NamedPhase],
    found: &Phases,
) -> anyhow::Result<()> {
    let Some(last) = phases.last() else {
        return Ok(());
    };
    let moments = phases.iter().map(|phase| Moment {
        name: &phase.name,
        taken_at: phase.snapshot.taken_at,
        count: phase.snapshot.count,
    });
    let document = Document {
        schema: "fdguard.phases/1",
        process: &last.snapshot.process,
        phases: moments.collect(),
        found,
    };
    super::json::write_line(out, &document)
}

/// Writes the steps and the verdict.
pub fn write(out: &mut dyn Write, phases: &[NamedPhase], found: &Phases) -> anyhow::Result<()> {
    let (Some(first), Some(last)) = (phases.first(), phases.last()) else {
        return Ok(());
    };
    let process = &last.snapshot.process;
    let head = format!("{} (pid {})", sanitize(&process.comm), process.pid);
    let note = format!("{} phases in {}", phases.len(), apart(first, last));
    writeln!(out, "{}  {}", paint(HEADING, head), paint(DIM, note))?;
    for (pair, step) in phases.windows(2).zip(&found.steps) {
        write_step(out, &pair[0], &pair[1], step)?;
    }
    write_verdict(out, phases, found, &sanitize_str(&first.name))
}

fn write_verdict(
    out: &mut dyn Write,
    phases: &[NamedPhase],
    found: &Phases,
    first: &str,
) -> anyhow::Result<()> {
    let total = |groups: &[PhaseGroup]| groups.iter().map(|group| group.count).sum::<u64>();
    let words = |number: u64| counted(number, "descriptor");
    if found.verdict == Return::BackToBaseline {
        let text = paint(ADDED, "back to baseline");
        writeln!(out, "{text}: nothing opened since {first} is still open")?;
    } else {
        let left = total(&found.leftover);
        let verb = if left == 1 { "is" } else { "are" };
        let (text, left) = (paint(WARNING, "not back to baseline"), words(left));
        writeln!(out, "{text}: {left} opened since {first} {verb} still open")?;
    }
    for group in &found.leftover {
        let since = group.since.and_then(|index| phases.get(index));
        let since = since.map_or(String::new(), |phase| {
            format!("  since {}", sanitize_str(&phase.name))
        });
        let note = paint(DIM, format!("{since}  {}", numbers(group)));
        writeln!(out, "{}{note}", line('+', group))?;
    }
    if !found.missing.is_empty() {
        let gone = words(total(&found.missing));
        writeln!(out, "closed since {first}: {gone}")?;
    }
    for group in &found.missing {
        writeln!(out, "{}", line('-', group))?;
    }
    Ok(())
}

fn write_step(
    out: &mut dyn Write,
    from: &NamedPhase,
    to: &NamedPhase,
    step: &PhaseStep,
) -> anyhow::Result<()> {
    writeln!(
        out,
        "{} → {}  {}",
        sanitize_str(&from.name),
        sanitize_str(&to.name),
        paint(DIM, format!("{} apart", apart(from, to)))
    )?;
    let delta = &step.delta;
    writeln!(
        out,
        "  {} → {} descriptors: {} opened, {} closed, {} changed",
        cell::exact(from.snapshot.count),
        cell::exact(to.snapshot.count),
        delta.opened.len(),
        delta.closed.len(),
        delta.changed.len()
    )?;
    let sides: [(char, Style, &[PhaseGroup]); 2] =
        [('+', ADDED, &step.opened), ('-', REMOVED, &step.closed)];
    for (sign, style, groups) in sides {
        for group in groups {
            writeln!(out, "{}", paint(style, line(sign, group)))?;
        }
    }
    Ok(())
}

fn line(sign: char, group: &PhaseGroup) -> String {
    format!(
        "{sign} {:>5}  {:<16} {}",
        format!("×{}", group.count),
        class_name(&group.class),
        sanitize(&group.target)
    )
}

/// `fds 5, 6, 9`.
fn numbers(group: &PhaseGroup) -> String {
    let shown = group.fds.iter().take(NUMBERS).map(ToString::to_string);
    let mut shown: Vec<String> = shown.collect();
    if group.fds.len() > NUMBERS {
        shown.push("…".to_owned());
    }
    let word = plural(group.fds.len(), "fd");
    format!("{word} {}", shown.join(", "))
}

fn apart(from: &NamedPhase, to: &NamedPhase) -> String {
    let [from, to] = [from, to].map(|phase| phase.snapshot.taken_at);
    duration(to.duration_since(from).as_secs_f64())
}
