//! `fdguard watch`: is it leaking, which class, how fast, and when does it reach which limit?

mod engine;
mod plan;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use fdguard_core::diagnosis::{Diagnosis, ProcessDiagnosis, WatchEnd};
use fdguard_core::finding::Finding;
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::recording::RecordingEntry;
use fdguard_core::rule::{self, RuleKind, RuleSettings};
use fdguard_core::timeline::Look;
use fdguard_core::watch::{Watch, WatchedProcess};
use fdguard_core::{Pid, Text};
use fdguard_diagnose::recording;
use fdguard_diagnose::watching::{LiveWatch, WatchProgress};
use fdguard_probe::Probe;
use serde::Serialize;

use engine::Engine;

use super::settings;
use crate::cli::WatchArgs;
use crate::exit::{self, HintedError};
use crate::output::OutputStream;
use crate::report::{diagnosis, rules, state_line};
use crate::tui::ViewEnd;
use crate::tui::watch::WatchOptions;
use crate::{input, output, progress, terminal, tui};

/// The longest wait before checking the clock again.
const PATIENCE: Duration = Duration::from_secs(3600);

pub(super) fn run(args: &WatchArgs) -> anyhow::Result<u8> {
    if args.list_rules {
        output::emit(args.output.as_deref(), |out| {
            rules::write(out, &rule::of_kind(RuleKind::Growth), args.json)
        })?;
        return Ok(exit::CLEAN);
    }
    let settings = settings::settings(&args.settings)?;
    if let Some(path) = &args.from {
        return replay(args, path, &settings);
    }
    let probe = Probe::new()?;
    let is_shown = is_shown(args);
    let plan = plan::plan(args, &probe, is_shown)?;
    let mut stream = OutputStream::open(args.output.as_deref())?;
    let mut engine = Engine::start(LiveWatch::start(&probe, plan)?, args.record.as_deref())?;
    let watched = if is_shown {
        show(args, &mut engine, &settings)
    } else {
        follow(args, &mut engine, &settings, &mut stream)
    };
    let code = watched.and_then(|()| finish(args, engine.live.watch(), &settings, stream));
    // Finish the recording even if the output has lost its reader.
    engine.finish();
    code
}

/// Whether a person is watching.
fn is_shown(args: &WatchArgs) -> bool {
    let is_asked = !args.json && !args.plain && args.output.is_none();
    is_asked && std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

fn show(args: &WatchArgs, engine: &mut Engine<'_>, settings: &RuleSettings) -> anyhow::Result<()> {
    let first = engine.live.watch().subjects().next();
    let command = first.map(|subject| terminal::sanitize(&subject.process.comm));
    let name = args.select.name.clone().or(command);
    let options = WatchOptions {
        colour: is_coloured(),
        settings: settings.clone(),
        ends_after: args.length.map(|length| length.as_secs_f64()),
        name: name.unwrap_or_default(),
    };
    let outcome = tui::watch::run(engine, &options)?;
    if outcome != ViewEnd::Ended {
        engine.stop(WatchEnd::Interrupted)?;
    }
    Ok(())
}

/// Prints lines until the end.
fn follow(
    args: &WatchArgs,
    engine: &mut Engine<'_>,
    settings: &RuleSettings,
    stream: &mut OutputStream,
) -> anyhow::Result<()> {
    let line = progress_line(args);
    loop {
        let (progress, entries) = engine.step(Instant::now() + PATIENCE)?;
        for entry in &entries {
            tell(args, engine.live.watch(), entry, settings, stream)?;
        }
        if progress == WatchProgress::Ended {
            return Ok(());
        }
        line.show(|| progress::of_watch(engine.live.watch(), settings, args.length));
    }
}

/// A progress line, unless the output already goes to the terminal: then its lines are the
/// progress.
fn progress_line(args: &WatchArgs) -> progress::ProgressLine {
    if args.output.is_none() && std::io::stdout().is_terminal() && (!args.json || args.samples) {
        return progress::ProgressLine::hidden();
    }
    progress::ProgressLine::on_stderr()
}

fn replay(args: &WatchArgs, path: &Path, settings: &RuleSettings) -> anyhow::Result<u8> {
    let mut stream = OutputStream::open(args.output.as_deref())?;
    let mut told = Ok(());
    let (watch, _) = recording::play_to(input::open_recording(path)?, |watch, entry| {
        if args.samples && told.is_ok() {
            told = tell(args, watch, entry, settings, &mut stream);
        }
    });
    told?;
    finish(args, &watch, settings, stream)
}

/// Prints a line for each look, if lines were requested.
fn tell(
    args: &WatchArgs,
    watch: &Watch,
    entry: &RecordingEntry,
    settings: &RuleSettings,
    stream: &mut OutputStream,
) -> anyhow::Result<()> {
    let RecordingEntry::Look { id, look } = entry else {
        return Ok(());
    };
    let Some(subject) = watch.subjects().find(|subject| subject.id == *id) else {
        return Ok(());
    };
    if args.json {
        if args.samples {
            serde_json::to_writer(&mut *stream, &Sample::of(subject, look))?;
            stream.write_all(b"\n")?;
            stream.flush()?;
        }
        return Ok(());
    }
    // The line is about this look: what it did not see is unknown, not unchanged.
    let opinion = ProcessDiagnosis {
        last: look.count,
        ..subject.opinion(settings)
    };
    let line = state_line::line(args.format, subject, &opinion);
    writeln!(stream, "{line}")?;
    Ok(stream.flush()?)
}

/// Prints the verdict and returns the exit code.
fn finish(
    args: &WatchArgs,
    watch: &Watch,
    settings: &RuleSettings,
    mut stream: OutputStream,
) -> anyhow::Result<u8> {
    let Some(mut found) = watch.diagnosis(settings) else {
        return Err(
            HintedError::look("no process was found", "list processes with fdguard top").into(),
        );
    };
    watch.name_traces(&mut found);
    if args.json {
        serde_json::to_writer(&mut stream, &found)?;
        stream.write_all(b"\n")?;
    } else {
        let mut styled = Vec::new();
        diagnosis::write(&mut styled, &found, terminal::width())?;
        if args.output.is_none() && is_coloured() {
            stream.write_all(&styled)?;
        } else {
            stream.write_all(&anstream::adapter::strip_bytes(&styled).into_vec())?;
        }
    }
    stream.finish()?;
    Ok(exit_code(&found))
}

fn is_coloured() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// The exit code. A watch that saw only a process's descriptor count and found nothing could not
/// look.
fn exit_code(found: &Diagnosis) -> u8 {
    let counts = |finding: &Finding| finding.severity >= Severity::Warning;
    let only_counted =
        |opinion: &ProcessDiagnosis| opinion.samples > 0 && opinion.classes.is_none();
    let is_blind = found.coverage.live_fds.is_none() || found.processes.iter().any(only_counted);
    if found.findings.iter().any(counts) {
        exit::FINDINGS
    } else if is_blind || found.verdict == Verdict::Unknown {
        exit::COULD_NOT_LOOK
    } else {
        exit::CLEAN
    }
}

/// One look as a line of JSON.
#[derive(Debug, Serialize)]
struct Sample<'a> {
    schema: &'static str,
    at: f64,
    pid: Pid,
    comm: &'a Text,
    count: Option<u64>,
    highest: Option<u64>,
    opened: Option<usize>,
    closed: Option<usize>,
}

impl<'a> Sample<'a> {
    fn of(subject: &'a WatchedProcess, look: &Look) -> Self {
        let table = look.table.as_ref();
        Self {
            schema: "fdguard.sample/1",
            at: look.at,
            pid: subject.process.pid,
            comm: &subject.process.comm,
            count: look.count,
            highest: subject.timeline.highest().map(u64::from),
            opened: table.map(|table| table.opened.len()),
            closed: table.map(|table| table.closed.len()),
        }
    }
}
