//! The text report of a check: the verdict, then each failure with its stack.

use std::io::Write;

use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use fdguard_core::origin::{Culprit, Frame};
use fdguard_core::proof::{self, Remains, RemainsVerdict};
use fdguard_core::units::{counted, moment};
use fdguard_diagnose::check::{Proof, fails};

use crate::report::style::{ADDED, CRITICAL, DIM, HEADING, WARNING, severity};
use crate::report::trace::answer::{self, DisplayOptions};
use crate::report::trace::hazard;
use crate::report::{diagnosis, unused_allowances, wrap};
use crate::terminal::{sanitize, sanitize_str};

/// Maximum number of frames of one stack, and of places that pass.
const MOST_FRAMES: usize = 12;
const MOST_PASSED: usize = 10;
/// How many hazards are shown; all of them are in the JSON.
const MOST_HAZARDS: usize = 20;

pub(super) fn write(
    out: &mut dyn Write,
    proof: &Proof,
    width: Option<usize>,
) -> anyhow::Result<()> {
    let width = diagnosis::columns(width);
    write_head(out, proof)?;
    let (failing, told): (Vec<&Finding>, Vec<&Finding>) =
        proof.diagnosis.findings.iter().partition(|one| fails(one));
    let shown = DisplayOptions::here(width);
    for one in answer::answers(&proof.diagnosis) {
        one.write(out, &shown)?;
    }
    for finding in failing.iter().filter(|one| !answer::is_answered(one)) {
        write_finding(out, finding, &shown)?;
    }
    write_hazards(out, &proof.diagnosis, width)?;
    for finding in told.iter().filter(|one| one.cleared.is_some()) {
        let note = finding.cleared.as_ref().map_or("", |note| &note.reason);
        let text = format!("allowed by {note}: {}", finding.why);
        dim(out, "  ", &text, width)?;
    }
    write_passed(out, &proof.check.leftovers, width)?;
    for finding in told.iter().filter(|one| is_aside(one)) {
        dim(
            out,
            "  ",
            &format!("{}: {}", finding.rule, finding.why),
            width,
        )?;
    }
    unused_allowances::write(out, &proof.unused, width)?;
    diagnosis::write_gaps(out, &proof.diagnosis.gaps, width)
}

/// Prints hazards as `trace` does, with all parties; accepted ones come last.
fn write_hazards(out: &mut dyn Write, found: &Diagnosis, width: usize) -> anyhow::Result<()> {
    const INDENT: &str = "  ";
    let width = diagnosis::columns(Some(width.saturating_sub(INDENT.len())));
    for one in found.hazards.iter().take(MOST_HAZARDS) {
        let mut text = Vec::new();
        let comm = hazard::comm(found, one.pid);
        hazard::write(&mut text, one, comm.as_deref(), width)?;
        for line in String::from_utf8_lossy(&text).lines() {
            writeln!(out, "{INDENT}{line}")?;
        }
    }
    let more = found.hazards.len().saturating_sub(MOST_HAZARDS);
    if more > 0 {
        writeln!(out, "{INDENT}{DIM}and {more} more hazards{DIM:#}")?;
    }
    Ok(())
}

/// Whether the watch reported it and the check does not judge it.
fn is_aside(finding: &Finding) -> bool {
    finding.cleared.is_none() && finding.severity >= Severity::Warning
}

fn write_head(out: &mut dyn Write, proof: &Proof) -> anyhow::Result<()> {
    let check = &proof.check;
    let (style, word) = match (check.passed, check.blind) {
        (false, _) => (CRITICAL, "failed"),
        (true, true) => (WARNING, "unknown"),
        (true, false) => (ADDED, "passed"),
    };
    let process = &proof.diagnosis.process;
    let comm = sanitize(&process.comm);
    let count = proof.failures();
    let found = match count {
        0 if check.blind => "no verdict".to_owned(),
        0 => "nothing left behind".to_owned(),
        count => counted(count, "finding"),
    };
    writeln!(
        out,
        "{style}{word}{style:#}  {HEADING}{comm}{HEADING:#} (pid {}): {found}{}",
        process.pid,
        extent(proof),
    )?;
    Ok(())
}

/// The duration and the number of cycles.
fn extent(proof: &Proof) -> String {
    let found = &proof.diagnosis;
    let passed = found.ended_at.duration_since(found.started_at);
    let seconds = passed.as_secs_f64().max(0.0);
    let cycles: u32 = proof.check.exercises.iter().map(|one| one.cycles).sum();
    match cycles {
        0 => format!(" in {}", moment(seconds)),
        cycles => format!(" after {} in {}", counted(cycles, "cycle"), moment(seconds)),
    }
}

fn write_finding(
    out: &mut dyn Write,
    finding: &Finding,
    shown: &DisplayOptions,
) -> anyhow::Result<()> {
    let width = shown.width;
    let (style, word) = severity(finding.severity);
    let origin = finding.origin.as_ref();
    let culprit = origin.and_then(|origin| origin.culprit.as_ref());
    let place = culprit.map(|one| format!("  {}", sanitize_str(&full_place(one, shown))));
    let what = match (&finding.class, &finding.target) {
        (Some(class), Some(target)) => format!("  {class} {}", sanitize(target)),
        (Some(class), None) => format!("  {class}"),
        (None, Some(target)) => format!("  {}", sanitize(target)),
        (None, None) => String::new(),
    };
    let place = place.unwrap_or_default();
    writeln!(
        out,
        "  {style}{word}{style:#} {}{HEADING}{place}{HEADING:#}{what}",
        finding.rule
    )?;
    wrapped(out, "    ", &finding.why, width)?;
    let stack = origin
        .map(|origin| origin.stack.as_slice())
        .unwrap_or_default();
    for frame in stack.iter().take(MOST_FRAMES) {
        writeln!(out, "      {DIM}{}{DIM:#}", sanitize_str(&named(frame)))?;
    }
    dim(out, "    ", &format!("next: {}", finding.next_step), width)
}

/// With a path relative to the working directory, so that editors can open it.
fn full_place(culprit: &Culprit, shown: &DisplayOptions) -> String {
    match (&culprit.file, culprit.line) {
        (Some(file), Some(line)) => {
            let function = culprit.function.as_deref().unwrap_or("?");
            format!("{}:{line} {function}", shown.path(file))
        }
        _ => proof::place(culprit),
    }
}

fn named(frame: &Frame) -> String {
    match &frame.module {
        Some(module) if frame.line.is_none() => {
            let function = frame.function.as_deref().unwrap_or("?");
            let module = module.to_lossy();
            let name = module.rsplit('/').next().unwrap_or(&module);
            format!("{function} in {name}")
        }
        _ => proof::place(&Culprit::from(frame)),
    }
}

/// Prints what was open and passes, one line each, and one line for all of the runtime's.
fn write_passed(out: &mut dyn Write, leftovers: &[Remains], width: usize) -> anyhow::Result<()> {
    let of = |judged: RemainsVerdict| leftovers.iter().filter(move |one| one.judged == judged);
    let kinds = [
        RemainsVerdict::Held,
        RemainsVerdict::Rolling,
        RemainsVerdict::InFlight,
        RemainsVerdict::CutOff,
    ];
    let told: Vec<&Remains> = kinds.into_iter().flat_map(of).collect();
    for one in told.iter().take(MOST_PASSED) {
        let text = format!("{} ({})", one.why, proof::what(one));
        dim(out, "  info: ", &text, width)?;
    }
    let more = told.len().saturating_sub(MOST_PASSED);
    if more > 0 {
        writeln!(out, "  {DIM}and {more} more places{DIM:#}")?;
    }
    let runtime: u64 = of(RemainsVerdict::Runtime).map(|one| one.count).sum();
    if runtime > 0 {
        let text =
            format!("{runtime} open descriptors belong to the runtime or to installed programs");
        dim(out, "  info: ", &text, width)?;
    }
    Ok(())
}

fn wrapped(out: &mut dyn Write, indent: &str, text: &str, width: usize) -> anyhow::Result<()> {
    let width = width.saturating_sub(indent.len());
    for line in wrap::lines(&sanitize_str(text), width, 0, 0) {
        writeln!(out, "{indent}{line}")?;
    }
    Ok(())
}

fn dim(out: &mut dyn Write, indent: &str, text: &str, width: usize) -> anyhow::Result<()> {
    let rest = width.saturating_sub(indent.len());
    for (at, line) in wrap::lines(&sanitize_str(text), rest, 0, 0)
        .iter()
        .enumerate()
    {
        let lead = if at == 0 {
            indent.to_owned()
        } else {
            " ".repeat(indent.len())
        };
        writeln!(out, "{DIM}{lead}{line}{DIM:#}")?;
    }
    Ok(())
}
