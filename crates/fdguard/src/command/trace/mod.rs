//! `fdguard trace`: which line of code opened what is still open?

pub(super) mod attach;
mod follow;
mod host;
mod notes;
mod observer;
mod outputs;
mod report;
mod run_loop;
pub(super) mod signals;
pub(super) mod source;
mod text;
mod view;

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use fdguard_core::children::finding::ChildPile;
use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use fdguard_core::proof::Clearance;
use fdguard_core::rule::RuleSettings;
use fdguard_diagnose::clearing;
use fdguard_diagnose::trace::{LaunchedProgram, LaunchedTrace, TraceReport, add_child_piles};
use fdguard_probe::Probe;
use fdguard_trace::{Error, Options, ProcessWhy, SiteDetail, TraceState, TracedCommand};

use super::settings;
use crate::cli::TraceArgs;
use crate::exit;
use crate::output::OutputStream;
use crate::report::{unused_allowances, why};
use crate::terminal;

use follow::Follower;
use observer::{observer, progress};
use outputs::Outputs;
pub(super) use run_loop::{WatchOutcome, WatchPace, notify};
use signals::SignalRequests;

/// Exit codes as in `env`: fdguard failed, the program could not be run, it was not found.
pub(super) const FAILED: u8 = 125;
pub(super) const NOT_RUNNABLE: u8 = 126;
pub(super) const NOT_FOUND: u8 = 127;
pub(super) use crate::exit::SIGNALLED;
/// The signal number of Ctrl-C.
const INTERRUPT: u8 = 2;

/// The longest wait before checking whether the program has ended.
const PATIENCE: Duration = Duration::from_secs(3600);

pub(super) fn run(args: &TraceArgs) -> anyhow::Result<u8> {
    if let Some(pid) = args.report {
        return report::run(args, pid);
    }
    if let Some(selection) = args.select.selection() {
        return attach::run(args, &selection);
    }
    if args.command.is_empty() {
        let hint =
            "run fdguard trace -- COMMAND, or fdguard trace PID to attach to a running program";
        return Err(exit::HintedError::usage("no program given", hint).into());
    }
    let outcome = trace(args).map_err(|error| match error.downcast_ref::<Error>() {
        Some(Error::Kernel(refusal)) => source::refused(refusal),
        _ => error,
    });
    outcome.or_else(|error| Ok(code_of(&error)))
}

/// Prints the error; returns the exit code, as in `env`.
pub(super) fn code_of(error: &anyhow::Error) -> u8 {
    let code = match error.downcast_ref::<Error>() {
        Some(Error::NotFound { .. }) => NOT_FOUND,
        Some(Error::NotRunnable { .. }) => NOT_RUNNABLE,
        _ => FAILED,
    };
    let is_usage = error
        .downcast_ref::<exit::HintedError>()
        .is_some_and(|hinted| hinted.code == exit::USAGE);
    let said = exit::report(error);
    if is_usage { said } else { code }
}

fn trace(args: &TraceArgs) -> anyhow::Result<u8> {
    let settings = settings::settings(&args.settings)?;
    let probe = Probe::new()?;
    let outputs = Outputs::open(args)?;
    if args.live {
        view::check_free()?;
    }
    let mut follower = if args.follow {
        Some(Follower::new(args, &settings)?)
    } else {
        None
    };
    let stream = match &follower {
        Some(follower) if !args.json => follower.stream()?,
        _ => open(args)?,
    };
    let mut requests = SignalRequests::listen()?;
    let options = Options {
        protect: args.protect.protection(),
        source: source::for_launch(args.source)?,
        users: args.why,
        pauses: args.why,
        ..Options::default()
    };
    let mut traced = TracedCommand::launch(&args.command, &options)?;
    source::announce(&traced);
    if let Some(blind) = traced
        .session
        .source()
        .blind()
        .filter(|_| options.protect.is_some())
    {
        notify(&format!("not protected: {}", blind.why()));
    }
    let mut observer = observer(args, &settings, follower.as_mut());
    let pace = pace(args);
    let watched = run_loop::watch(pace, &probe, &mut traced, &mut requests, &mut *observer)?;
    drop(observer);
    let has_ended = watched.status.is_some();
    let state = traced.session.finish(detail(args), has_ended)?;
    let report = report(&state, &watched, (traced.pid(), &args.command), &settings);
    let report = Finished {
        report,
        piles: &state.piles,
        whys: watched.whys(),
        follower,
        outputs,
        stream,
    };
    let found = report.write(args, &settings, Owner::Program)?;
    Ok(exit_code(args, &watched, &found))
}

/// Whose the standard output is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Program,
    Fdguard,
}

/// A report that is not judged and written yet.
struct Finished<'s> {
    report: TraceReport,
    piles: &'s [ChildPile],
    whys: Vec<ProcessWhy>,
    follower: Option<Follower<'s>>,
    outputs: Outputs,
    stream: Option<OutputStream>,
}

impl Finished<'_> {
    /// Writes every output; returns what was found.
    fn write(
        mut self,
        args: &TraceArgs,
        settings: &RuleSettings,
        stdout: Owner,
    ) -> anyhow::Result<Diagnosis> {
        let diagnosis = &mut self.report.diagnosis;
        add_child_piles(diagnosis, self.piles);
        let clearance = Clearance::new(&args.allow, settings);
        clearing::clear(diagnosis, &clearance);
        clearing::apply_clearances(diagnosis);
        let unused = clearance.unused(&clearing::reasons(diagnosis));
        why::add_to_findings(&mut diagnosis.findings, &self.whys);
        diagnosis.gaps.extend(why::gaps(&self.whys));
        let written = self.outputs.write(&self.report, &self.whys);
        if let Some(follower) = &mut self.follower {
            follower.hazards(&self.report.diagnosis.hazards);
        }
        write(
            args,
            (&self.report, &self.whys),
            &unused,
            (self.stream, stdout),
        )?;
        written?;
        Ok(self.report.diagnosis)
    }
}

/// How a program is watched.
fn pace(args: &TraceArgs) -> WatchPace {
    WatchPace {
        every: args.every,
        length: args.length,
        is_why: args.why,
    }
}

/// Watches a program until it ends or its time is up.
pub(super) fn watch<'p>(
    pace: WatchPace,
    probe: &'p Probe,
    traced: &mut TracedCommand,
    settings: &RuleSettings,
) -> anyhow::Result<WatchOutcome<'p>> {
    run_loop::watch(
        pace,
        probe,
        traced,
        &mut SignalRequests::listen()?,
        &mut *progress(settings, pace.length),
    )
}

/// The report about a launched program, from the final state of its trace.
pub(super) fn report(
    state: &TraceState,
    watched: &WatchOutcome<'_>,
    (pid, command): (u32, &[OsString]),
    settings: &RuleSettings,
) -> TraceReport {
    let launched = LaunchedTrace {
        state,
        watch: watched.watch(),
        names: &watched.names,
        settings,
    };
    let began = watched.began;
    launched.report(&LaunchedProgram {
        pid,
        command,
        began,
    })
}

/// Which sites the outputs need.
fn detail(args: &TraceArgs) -> SiteDetail {
    let is_whole = args.json || args.outputs.pprof.is_some();
    match is_whole {
        true => SiteDetail::Every,
        false => SiteDetail::Held,
    }
}

/// Opens the result file before the program runs in vain.
fn open(args: &TraceArgs) -> anyhow::Result<Option<OutputStream>> {
    let path = args.output.as_deref();
    path.map(|path| OutputStream::open(Some(path))).transpose()
}

fn write(
    args: &TraceArgs,
    (report, whys): (&TraceReport, &[ProcessWhy]),
    unused: &[String],
    (stream, stdout): (Option<OutputStream>, Owner),
) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    if args.json {
        why::write_json(&mut bytes, &report.diagnosis, args.why.then_some(whys))?;
        bytes.push(b'\n');
    } else {
        text::write(&mut bytes, report, terminal::width())?;
        why::write(&mut bytes, whys, terminal::width())?;
        let columns = crate::report::diagnosis::columns(terminal::width());
        unused_allowances::write(&mut bytes, unused, columns)?;
    }
    match stream {
        Some(mut stream) => {
            stream.write_all(&anstream::adapter::strip_bytes(&bytes).into_vec())?;
            stream.finish()
        }
        None if args.json || stdout == Owner::Fdguard => Ok(anstream::stdout().write_all(&bytes)?),
        None => Ok(anstream::stderr().write_all(&bytes)?),
    }
}

/// The program's own failure takes precedence.
fn exit_code(args: &TraceArgs, watched: &WatchOutcome<'_>, found: &Diagnosis) -> u8 {
    let own = own_code(watched.status);
    let is_own_failure = own != 0 && !(watched.was_ended && watched.status.is_some());
    match (is_own_failure, has_findings(found)) {
        (true, _) => own,
        (false, true) => args.error_exitcode,
        (false, false) => exit::CLEAN,
    }
}

/// Whether something was found that was not accepted.
fn has_findings(found: &Diagnosis) -> bool {
    let counts =
        |finding: &Finding| finding.severity >= Severity::Warning && finding.cleared.is_none();
    clearing::has_hazard(found) || found.findings.iter().any(counts)
}

/// The exit code as a shell reports it. A program that fdguard detached from had not ended on
/// Ctrl-C.
pub(super) fn own_code(status: Option<ExitStatus>) -> u8 {
    let signalled =
        |signal: i32| SIGNALLED.saturating_add(u8::try_from(signal).unwrap_or_default());
    match status.map(|status| (status.code(), status.signal())) {
        None => SIGNALLED + INTERRUPT,
        Some((Some(code), _)) => u8::try_from(code).unwrap_or(u8::MAX),
        Some((None, Some(signal))) => signalled(signal),
        Some((None, None)) => FAILED,
    }
}
