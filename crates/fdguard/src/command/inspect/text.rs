//! Text output of an inspection: the verdict first, then the facts, then the next steps.

use std::io::Write;

use fdguard_core::lint::Severity;
use fdguard_core::units::counted;
use fdguard_files::heal::{HealOutcome, HealResult};
use fdguard_files::holding::{Grip, HoldingProcess};
use fdguard_files::{FileFinding, FileVerdict, Inspection};

use super::{Document, Inspected, facts};
use crate::report::style::{self, CRITICAL, DIM, HEADING, WARNING};
use crate::report::wrap;
use crate::terminal::{sanitize, sanitize_str};

pub(super) fn write(
    out: &mut dyn Write,
    document: &Document,
    width: Option<usize>,
) -> anyhow::Result<()> {
    for (index, file) in document.files.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        one(&mut Page { out, width }, file)?;
    }
    Ok(())
}

/// Breaks lines at the terminal's width, and not at all in a file.
struct Page<'a> {
    out: &'a mut dyn Write,
    width: Option<usize>,
}

impl Page<'_> {
    fn line(&mut self, text: &str) -> anyhow::Result<()> {
        let text = sanitize_str(text);
        let Some(width) = self.width else {
            return Ok(writeln!(self.out, "{text}")?);
        };
        for line in wrap::wrap(&text, width) {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    fn heading(&mut self, text: &str) -> anyhow::Result<()> {
        Ok(writeln!(self.out, "{HEADING}{text}{HEADING:#}")?)
    }
}

fn one(page: &mut Page<'_>, file: &Inspected) -> anyhow::Result<()> {
    let seen = &file.inspection;
    verdict(page, seen)?;
    if let Some(healed) = &file.healed {
        page.line(&format!("  heal: {}", said(healed)))?;
    }
    for fact in facts::facts(seen) {
        page.line(&format!("  {fact}"))?;
    }
    findings(page, seen)?;
    holders(page, seen)?;
    if !seen.gaps.is_empty() {
        page.heading("not seen")?;
        for gap in &seen.gaps {
            page.line(&format!("  {}: {}; {}", gap.what, gap.why, gap.remedy))?;
        }
    }
    if !seen.next.is_empty() && file.healed.is_none() {
        page.heading("next")?;
        for step in &seen.next {
            page.line(&format!("  {step}"))?;
        }
    }
    Ok(())
}

fn verdict(page: &mut Page<'_>, seen: &Inspection) -> anyhow::Result<()> {
    let style = match seen.verdict {
        FileVerdict::Damaged | FileVerdict::Endangered => CRITICAL,
        FileVerdict::Suspicious | FileVerdict::Encrypted => WARNING,
        FileVerdict::Healthy | FileVerdict::Clean => HEADING,
    };
    let name = sanitize(&seen.path);
    let text = format!("{name}: {}", seen.summary);
    let lines = match page.width {
        Some(width) => wrap::wrap(&sanitize_str(&text), width),
        None => vec![sanitize_str(&text).into_owned()],
    };
    for line in lines {
        writeln!(page.out, "{}", style::paint(style, line))?;
    }
    Ok(())
}

fn said(healed: &HealResult) -> String {
    let backup = healed.backup.as_ref().map_or_else(String::new, |path| {
        format!("; the damaged file is kept in {}", path.display())
    });
    let message = &healed.message;
    match healed.outcome {
        HealOutcome::Healed => format!("{message}{backup}"),
        HealOutcome::WouldHeal => format!("would work: {message}; nothing was changed"),
        HealOutcome::NothingToDo => "nothing to heal".to_owned(),
        HealOutcome::Refused => format!("refused, nothing was changed: {message}{backup}"),
        HealOutcome::Unsure => format!("not tried, nothing was changed: {message}{backup}"),
    }
}

/// Prints each finding in a line, except the verdict itself and fields that it has overwritten.
fn findings(page: &mut Page<'_>, seen: &Inspection) -> anyhow::Result<()> {
    let is_verdict = |one: &&FileFinding| seen.summary.ends_with(&one.message);
    let first = seen.findings.iter().find(is_verdict);
    let follows = |one: &FileFinding| {
        first.is_some_and(|first| one.rule != first.rule && lies_in(one, first))
    };
    let others = seen
        .findings
        .iter()
        .filter(|one| first.is_none_or(|first| !std::ptr::eq(*one, first)));
    let (follow, others): (Vec<&FileFinding>, Vec<&FileFinding>) =
        others.partition(|one| follows(one));
    if follow.is_empty() && others.is_empty() {
        return Ok(());
    }
    page.heading("findings")?;
    if !follow.is_empty() {
        let rules: Vec<&str> = follow.iter().map(|one| one.rule).collect();
        page.line(&format!("  fields overwritten by it: {}", rules.join(", ")))?;
    }
    for finding in others {
        let word = match finding.severity {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
            Severity::Info => "info",
        };
        page.line(&format!("  {word} [{}]: {}", finding.rule, finding.message))?;
    }
    Ok(())
}

/// Whether a field was overwritten by foreign bytes.
fn lies_in(field: &FileFinding, foreign: &FileFinding) -> bool {
    let (Some(at), Some(from), Some(length)) = (field.offset, foreign.offset, foreign.length)
    else {
        return false;
    };
    // The magic starts before the data that overwrote a part of it.
    field.rule == "magic" && from < 16 || (from..from + length).contains(&at)
}

fn holders(page: &mut Page<'_>, seen: &Inspection) -> anyhow::Result<()> {
    page.heading("held by")?;
    if seen.holders.processes.is_empty() {
        let certain = if seen.holders.is_complete {
            "nobody"
        } else {
            "no visible process"
        };
        page.line(&format!("  {certain}"))?;
    }
    for process in &seen.holders.processes {
        page.line(&format!("  {}", held(process)))?;
    }
    if let Some(note) = &seen.writers.note {
        writeln!(page.out, "{DIM}  {}{DIM:#}", sanitize_str(note))?;
    }
    Ok(())
}

/// `python3 (pid 12): 2 connections, 1 parked; database 3, 5; WAL 4; WAL index 6`.
fn held(process: &HoldingProcess) -> String {
    let mut parts = Vec::new();
    if process.connections > 0 {
        let connections = counted(process.connections, "connection");
        parts.push(format!("{connections}, {} parked", process.parked));
    }
    let grips = [
        (
            if process.connections > 0 {
                "database"
            } else {
                "file"
            },
            &process.main,
        ),
        ("WAL", &process.wal),
        ("WAL index", &process.shm),
        ("journal", &process.journal),
    ];
    parts.extend(
        grips
            .into_iter()
            .filter_map(|(name, grip)| grip_text(name, grip)),
    );
    if parts.is_empty() {
        parts.push("locks; its descriptors cannot be read".to_owned());
    }
    format!("{}: {}", process.name(), parts.join("; "))
}

fn grip_text(name: &str, grip: &Grip) -> Option<String> {
    let mut parts = Vec::new();
    if !grip.fds.is_empty() {
        let how = if grip.writable > 0 { "" } else { ", read-only" };
        parts.push(format!("fd {}{how}", numbers(&grip.fds)));
    }
    if grip.mapped {
        parts.push("mapped".to_owned());
    }
    if !grip.rings.is_empty() {
        parts.push(format!("in the io_uring fd {}", numbers(&grip.rings)));
    }
    if !grip.gone.is_empty() {
        parts.push(format!("a deleted file as fd {}", numbers(&grip.gone)));
    }
    (!parts.is_empty()).then(|| format!("{name} {}", parts.join(", ")))
}

fn numbers(fds: &[u32]) -> String {
    let shown: Vec<String> = fds.iter().take(8).map(ToString::to_string).collect();
    let more = if fds.len() > 8 {
        format!(" and {} more", fds.len() - 8)
    } else {
        String::new()
    };
    format!("{}{more}", shown.join(", "))
}
