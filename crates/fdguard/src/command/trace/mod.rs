//! `fdguard trace`: which line of code opened what is still open?

pub(super) mod joined;
mod text;

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fdguard_core::diagnosis::{Diagnosis, Ended};
use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use fdguard_probe::{Error as ProbeError, Probe};
use fdguard_trace::{Error, Options, Tables, Traced};
use jiff::Timestamp;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::settings;
use crate::cli::TraceArgs;
use crate::exit;
use crate::output::Stream;
use crate::terminal;
use crate::watching::{Live, Plan};

use joined::Joined;

/// As `env` says it: we failed, it could not be run, it was not found.
pub(super) const FAILED: u8 = 125;
pub(super) const NOT_RUNNABLE: u8 = 126;
pub(super) const NOT_FOUND: u8 = 127;
/// What a signal adds to its number.
pub(super) const SIGNALLED: u8 = 128;

/// How long to wait at most before looking whether the program ended.
const PATIENCE: Duration = Duration::from_secs(3600);

/// How long to wait before another look at a program that is just starting.
const BECOMING: Duration = Duration::from_millis(5);

pub(super) fn run(args: &TraceArgs) -> anyhow::Result<u8> {
    let outcome = trace(args);
    outcome.or_else(|error| {
        let code = match error.downcast_ref::<Error>() {
            Some(Error::NotFound { .. }) => NOT_FOUND,
            Some(Error::NotRunnable { .. }) => NOT_RUNNABLE,
            _ => FAILED,
        };
        let is_usage = error
            .downcast_ref::<exit::Hinted>()
            .is_some_and(|hinted| hinted.code == exit::USAGE);
        let said = exit::report(&error);
        Ok(if is_usage { said } else { code })
    })
}

fn trace(args: &TraceArgs) -> anyhow::Result<u8> {
    let settings = settings::settings(&args.settings)?;
    let probe = Probe::new()?;
    let stream = args
        .output
        .as_deref()
        .map(|path| Stream::open(Some(path)))
        .transpose()?;
    let passed_on = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&passed_on))?;
    }
    let mut traced = Traced::launch(&args.command, Options::default())?;
    let pace = (args.every, args.length);
    let watched = watch(pace, &probe, &mut traced, &passed_on)?;
    let status = traced.wait()?;
    let joined = Joined::of(&watched, &traced, &args.command, &settings)?;
    write(args, &joined, stream)?;
    Ok(exit_code(
        args,
        status,
        watched.was_ended,
        &joined.diagnosis,
    ))
}

/// What was seen while the program ran.
pub(super) struct Watched<'p> {
    /// When the program was started.
    pub(super) began: Timestamp,
    pub(super) live: Option<Live<'p>>,
    /// The tables at the last look.
    pub(super) tables: Tables,
    /// What is older, by the monotonic clock, was seen by that look if it was open.
    pub(super) looked: u64,
    /// Whether we ended the program.
    pub(super) was_ended: bool,
}

/// Watches the program until it ends, or as long as the pace says: the time between two looks, and of all.
pub(super) fn watch<'p>(
    (every, length): (Duration, Option<Duration>),
    probe: &'p Probe,
    traced: &mut Traced,
    passed_on: &AtomicBool,
) -> anyhow::Result<Watched<'p>> {
    let plan = Plan {
        pids: vec![traced.pid()],
        name: None,
        tree: true,
        every,
        jitter: Duration::ZERO,
        length,
    };
    let mut watched = Watched {
        began: Timestamp::now(),
        live: None,
        tables: Tables::default(),
        looked: 0,
        was_ended: false,
    };
    loop {
        match Live::begin(probe, plan.clone()) {
            Ok(live) => break follow(live, &mut watched, traced, passed_on)?,
            Err(error) if error.downcast_ref::<ProbeError>().is_none() => return Err(error),
            // It ended before anybody could look: what it wrote down is all there is.
            Err(_) if traced.has_ended()? => break,
            // While it becomes another program it cannot be looked at for a moment.
            Err(_) => std::thread::sleep(BECOMING),
        }
    }
    let ended = watched.live.as_ref().and_then(|live| live.watch().ended());
    if ended == Some(Ended::TimeUp) {
        watched.was_ended = true;
        traced.signal(Signal::TERM)?;
    } else if passed_on.load(Ordering::Relaxed) {
        // Ctrl-C reached the program by the terminal; what was sent to us alone is for it.
        traced.signal(Signal::TERM)?;
    }
    Ok(watched)
}

fn follow<'p>(
    mut live: Live<'p>,
    watched: &mut Watched<'p>,
    traced: &mut Traced,
    passed_on: &AtomicBool,
) -> anyhow::Result<()> {
    let mut before = 0;
    loop {
        live.advance(Instant::now() + PATIENCE)?;
        live.take_entries();
        let is_gone = live
            .watch()
            .subjects()
            .any(|one| one.process.pid == traced.pid() && one.gone.is_some());
        if !is_gone {
            watched.looked = before;
            before = joined::monotonic();
            watched.tables = traced.tables_of_living()?;
        }
        if is_gone {
            live.stop(Ended::ProcessEnded)?;
        } else if passed_on.load(Ordering::Relaxed) {
            // It may have come before the watch listened.
            live.stop(Ended::Interrupted)?;
        }
        if live.watch().ended().is_some() {
            watched.live = Some(live);
            return Ok(());
        }
    }
}

fn write(args: &TraceArgs, joined: &Joined, stream: Option<Stream>) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    if args.json {
        serde_json::to_writer(&mut bytes, &joined.diagnosis)?;
        bytes.push(b'\n');
    } else {
        text::write(&mut bytes, joined, terminal::width())?;
    }
    match stream {
        Some(mut stream) => {
            stream.write_all(&anstream::adapter::strip_bytes(&bytes).into_vec())?;
            stream.finish()
        }
        None if args.json => Ok(anstream::stdout().write_all(&bytes)?),
        None => Ok(anstream::stderr().write_all(&bytes)?),
    }
}

/// The program's own failure counts most.
fn exit_code(args: &TraceArgs, status: ExitStatus, was_ended: bool, found: &Diagnosis) -> u8 {
    let own = match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => SIGNALLED.saturating_add(u8::try_from(signal).unwrap_or(0)),
        (None, None) => FAILED,
    };
    let is_own_failure = own != 0 && !was_ended;
    let counts =
        |finding: &Finding| finding.severity >= Severity::Warning && finding.cleared.is_none();
    let is_found = found.findings.iter().any(counts);
    match (is_own_failure, is_found) {
        (true, _) => own,
        (false, true) => args.error_exitcode,
        (false, false) => exit::CLEAN,
    }
}
