//! `fdguard archive`: move logs without losing a line.

use std::fmt::Write as _;
use std::io::Write;

use fdguard_core::units::counted;
use fdguard_files::Archive;
use fdguard_files::archive::{
    ArchiveMethod, ArchiveOutcome, ArchiveReceipt, ArchiveReport, UnusedProof,
};

use crate::cli::ArchiveArgs;
use crate::exit::{self, HintedError};
use crate::output;
use crate::report::style::{CRITICAL, DIM};
use crate::terminal::sanitize_str;

pub(super) fn run(args: &ArchiveArgs) -> anyhow::Result<u8> {
    let archive = Archive {
        wait: args.wait,
        within: args.within.clone(),
        follow: args.follow,
        no_rename: args.no_rename,
        trust_scan: args.trust_scan,
        ..Archive::new(&args.to)
    };
    let report = archive.run(&args.files);
    let file = args.output.as_deref();
    if args.json {
        output::emit(file, |out| {
            serde_json::to_writer(&mut *out, &report)?;
            Ok(out.write_all(b"\n")?)
        })?;
    } else {
        output::emit_styled(file, |out| write(out, &report))?;
        for receipt in with_outcome(&report, ArchiveOutcome::NotSeen) {
            // A file that could not be examined is not a result.
            let (message, remedy) = said_of(receipt);
            exit::report(&HintedError::look(message, remedy).into());
        }
    }
    Ok(exit_code(&report))
}

fn with_outcome(
    report: &ArchiveReport,
    outcome: ArchiveOutcome,
) -> impl Iterator<Item = &ArchiveReceipt> {
    report
        .files
        .iter()
        .filter(move |receipt| receipt.outcome == outcome)
}

/// "Could not look" takes precedence, as everywhere.
fn exit_code(report: &ArchiveReport) -> u8 {
    if with_outcome(report, ArchiveOutcome::NotSeen)
        .next()
        .is_some()
    {
        exit::COULD_NOT_LOOK
    } else if report.success {
        exit::CLEAN
    } else {
        exit::FINDINGS
    }
}

fn write(out: &mut dyn Write, report: &ArchiveReport) -> anyhow::Result<()> {
    for receipt in &report.files {
        match receipt.outcome {
            ArchiveOutcome::Archived | ArchiveOutcome::AlreadyArchived => {
                writeln!(out, "{}", sanitize_str(&line(receipt)))?;
            }
            ArchiveOutcome::Kept => {
                let (message, remedy) = said_of(receipt);
                let message = format!("{message}; {remedy}");
                writeln!(
                    out,
                    "{CRITICAL}not archived{CRITICAL:#} {}",
                    sanitize_str(&message)
                )?;
            }
            ArchiveOutcome::NotSeen => continue,
        }
        for note in &receipt.notes {
            writeln!(out, "{DIM}  {}{DIM:#}", sanitize_str(note))?;
        }
        for gap in &receipt.gaps {
            let text = format!("not seen: {} ({}); {}", gap.what, gap.why, gap.remedy);
            writeln!(out, "{DIM}  {}{DIM:#}", sanitize_str(&text))?;
        }
    }
    Ok(())
}

/// `archived a.jsonl → archive/a.jsonl: 900 lines, 12600 bytes, renamed, waited for 1 writer`.
fn line(receipt: &ArchiveReceipt) -> String {
    let source = receipt.source.to_lossy();
    let mut text = match receipt.outcome {
        ArchiveOutcome::Archived => format!("archived {source}"),
        _ => format!("already archived by another process: {source}"),
    };
    if let Some(to) = &receipt.archived_to {
        let _ = write!(text, " → {}", to.to_lossy());
    }
    let mut parts = Vec::new();
    if let (Some(lines), Some(bytes)) = (receipt.lines, receipt.bytes) {
        parts.push(counted(lines, "line"));
        parts.push(counted(bytes, "byte"));
    }
    parts.extend(tail(receipt));
    match receipt.method {
        Some(ArchiveMethod::Copy) => parts.push("copied and compared".to_owned()),
        Some(ArchiveMethod::Rename) => parts.push("renamed".to_owned()),
        Some(ArchiveMethod::Found) | None => {}
    }
    if !receipt.writers.is_empty() {
        let writers = counted(receipt.writers.len(), "writer");
        parts.push(format!("waited for {writers}"));
    }
    if receipt.proof == Some(UnusedProof::Scan) {
        parts.push("no writer found in the descriptor tables (no lease)".to_owned());
    }
    if receipt.recovered {
        parts.push("resumed after an interrupted archive".to_owned());
    }
    if !parts.is_empty() {
        let _ = write!(text, ": {}", parts.join(", "));
    }
    text
}

fn tail(receipt: &ArchiveReceipt) -> Option<String> {
    let tail = receipt.tail?;
    if tail.torn_bytes > 0 {
        let torn = counted(tail.torn_bytes, "byte");
        return Some(format!("the last line is torn ({torn})"));
    }
    (tail.last_line_is_json == Some(false)).then(|| "the last line is not JSON".to_owned())
}

/// What failed for which file, and the hint.
fn said_of(receipt: &ArchiveReceipt) -> (String, String) {
    let source = receipt.source.to_lossy();
    let (mut message, remedy) = match &receipt.error {
        Some(error) => (format!("{source}: {}", error.message), error.remedy.clone()),
        None => (source.clone().into_owned(), String::new()),
    };
    if let Some(kept) = receipt
        .kept_at
        .as_ref()
        .filter(|kept| **kept != receipt.source)
    {
        let _ = write!(message, "; it is now {}", kept.to_lossy());
    }
    (message, remedy)
}
