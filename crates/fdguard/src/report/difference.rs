//! A difference for people and programs.

use std::io::Write;

use fdguard_core::delta::{Delta, FdChange};
use fdguard_core::snapshot::Process;
use fdguard_core::units::duration;
use fdguard_core::{FdEntry, Snapshot};
use jiff::Timestamp;
use serde::Serialize;

use super::host::cell;
use super::style::{ADDED, DIM, HEADING, REMOVED, paint};
use super::table::class_name;
use crate::terminal::sanitize;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    before: Side<'a>,
    after: Side<'a>,
    delta: &'a Delta,
}

#[derive(Serialize)]
struct Side<'a> {
    taken_at: Timestamp,
    process: &'a Process,
    count: Option<u64>,
}

impl<'a> Side<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            taken_at: snapshot.taken_at,
            process: &snapshot.process,
            count: snapshot.count,
        }
    }
}

/// Writes one JSON document.
pub fn write_json(
    out: &mut dyn Write,
    before: &Snapshot,
    after: &Snapshot,
    delta: &Delta,
) -> anyhow::Result<()> {
    let document = Document {
        schema: "fdguard.diff/1",
        before: Side::of(before),
        after: Side::of(after),
        delta,
    };
    super::json::write_line(out, &document)
}

/// Writes what opened, closed and changed.
pub fn write(
    out: &mut dyn Write,
    before: &Snapshot,
    after: &Snapshot,
    delta: &Delta,
) -> anyhow::Result<()> {
    let name = |snapshot: &Snapshot| {
        format!(
            "{} (pid {})",
            sanitize(&snapshot.process.comm),
            snapshot.process.pid
        )
    };
    let head = match delta.same_process {
        Some(true) => name(after),
        _ => format!("{} → {}", name(before), name(after)),
    };
    let between = after.taken_at.duration_since(before.taken_at);
    writeln!(
        out,
        "{}  {}",
        paint(HEADING, head),
        paint(DIM, format!("{} apart", duration(between.as_secs_f64())))
    )?;
    if delta.same_process == Some(false) {
        writeln!(
            out,
            "  two different processes, compared by descriptor number"
        )?;
    }
    writeln!(
        out,
        "  {} → {} descriptors: {} opened, {} closed, {} changed",
        cell::exact(before.count),
        cell::exact(after.count),
        delta.opened.len(),
        delta.closed.len(),
        delta.changed.len()
    )?;
    for row in &delta.classes {
        let change = i128::from(row.after) - i128::from(row.before);
        writeln!(
            out,
            "  {change:+6}  {} ({} → {})",
            class_name(&row.class),
            row.before,
            row.after
        )?;
    }
    for entry in &delta.opened {
        writeln!(out, "{}", paint(ADDED, line('+', entry)))?;
    }
    for entry in &delta.closed {
        writeln!(out, "{}", paint(REMOVED, line('-', entry)))?;
    }
    for change in &delta.changed {
        writeln!(out, "{}", changed(change))?;
    }
    Ok(())
}

fn line(sign: char, entry: &FdEntry) -> String {
    format!(
        "{sign} {:>5}  {:<16} {}",
        entry.fd,
        class_name(&entry.class),
        sanitize(&entry.target)
    )
}

fn changed(change: &FdChange) -> String {
    let FdChange {
        fd,
        what,
        before,
        after,
    } = change;
    let class = if before.class == after.class {
        class_name(&after.class)
    } else {
        format!(
            "{} → {}",
            class_name(&before.class),
            class_name(&after.class)
        )
    };
    let target = if before.target == after.target {
        sanitize(&after.target)
    } else {
        format!("{} → {}", sanitize(&before.target), sanitize(&after.target))
    };
    format!(
        "~ {fd:>5}  {class:<16} {target}  ({} changed)",
        what.join(", ")
    )
}
