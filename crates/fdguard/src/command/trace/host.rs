//! `fdguard trace --all`: every process of the host, by programs in the kernel.

use std::sync::Arc;
use std::time::Instant;

use fdguard_process::signals::Signals;
use fdguard_trace::{
    AttachedTrace, Error, Options, SiteDetail, TraceEnder, TraceState, TracedProcess,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::run_loop::{WatchOutcome, notify};
use super::{Finished, Outputs, Owner, PATIENCE, attach, has_findings, open, report, source};
use crate::cli::{SourceArg, TraceArgs};
use crate::command::settings;
use crate::exit::{self, HintedError};

/// How often the records of ended processes are dropped.
const EVERY: std::time::Duration = std::time::Duration::from_secs(1);

pub(super) fn run(args: &TraceArgs) -> anyhow::Result<u8> {
    check(args)?;
    let settings = settings::settings(&args.settings)?;
    let outputs = Outputs::open(args)?;
    let stream = open(args)?;
    let signals = Signals::listen_for_end()?;
    let host = AttachedTrace::host(&Options::default()).map_err(|error| match error {
        Error::Kernel(refusal) => source::refused(&refusal),
        other => other.into(),
    });
    let (mut traced, ender) = host?;
    notify("tracing every process of the host by the kernel (eBPF); Ctrl-C ends it");
    let watched = WatchOutcome::begin();
    let end = Instant::now() + args.length.unwrap_or(PATIENCE * 24 * 365);
    prepare_end(Arc::clone(&signals), end, ender)?;
    while !wait(&signals, end) {
        traced.session.poll()?;
    }
    attach::leave(&traced);
    let state = traced.session.finish(SiteDetail::Suspicious, false)?;
    let root = foremost(&state).map_or(0, |one| one.pid);
    let finished = Finished {
        report: report(&state, &watched, (root, &[]), &settings),
        piles: &state.piles,
        whys: Vec::new(),
        follower: None,
        outputs,
        stream,
    };
    let found = finished.write(args, &settings, Owner::Fdguard)?;
    Ok(match has_findings(&found) {
        true => args.error_exitcode,
        false => exit::CLEAN,
    })
}

/// What does not go together with a whole host.
fn check(args: &TraceArgs) -> anyhow::Result<()> {
    let usage = |message: &str| {
        let hint = "run fdguard top to find the process that grows, then fdguard trace PID";
        Err(HintedError::usage(message, hint).into())
    };
    if matches!(args.source, Some(SourceArg::Launch | SourceArg::Attach)) {
        return usage("trace --all works only with --source ebpf");
    }
    if args.follow || args.live {
        return usage("trace --all does not support --follow and --live");
    }
    if args.protect.protection().is_some() {
        return usage("trace --all does not support --protect");
    }
    Ok(())
}

/// Prepares the end as soon as it is asked for: the thread that ends the trace may be reading, and
/// a busy host always has more to read.
fn prepare_end(signals: Arc<Signals>, end: Instant, ender: TraceEnder) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("fdguard-end".to_owned());
    let wait = move || {
        while !wait(&signals, end) {}
        ender.end_soon();
    };
    thread.spawn(wait).map(drop)
}

/// Waits for a signal or the end of the time, at most for a moment; whether it is over.
fn wait(signals: &Signals, end: Instant) -> bool {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return true;
    }
    let timeout = Timespec::try_from(left.min(EVERY)).unwrap_or_default();
    let mut fds = [PollFd::new(signals, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
}

/// The process that the report is about: the one that leaks the most, or holds the most.
fn foremost(state: &TraceState) -> Option<&TracedProcess> {
    let leaked = |one: &TracedProcess| {
        let leaking = one.sites.iter().filter(|site| site.is_leaking());
        let live = leaking.flat_map(|site| &site.paths);
        let live: usize = live.map(|path| path.history.live.len()).sum();
        (live, one.count)
    };
    state.processes.iter().max_by_key(|one| leaked(one))
}
