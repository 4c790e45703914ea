//! Runs a program to its end under the tracer.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use fdguard_core::rule::RuleSettings;
use fdguard_diagnose::check::{ProgramEnd, Proof};
use fdguard_probe::Probe;
use fdguard_trace::{Options, ProcessWhy, SiteDetail, TracedCommand};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::family::Family;
use super::{code_of, start};
use crate::cli::CheckArgs;
use crate::command::trace::{self, WatchOutcome, WatchPace};

/// Runs the program and judges what it left.
pub(super) fn run(
    args: &CheckArgs,
    settings: &RuleSettings,
) -> anyhow::Result<(Proof, Vec<ProcessWhy>)> {
    let probe = Probe::new()?;
    let mut family = Family::start()?;
    let options = Options {
        keep_ended: true,
        protect: args.protect.protection(),
        users: args.why,
        pauses: args.why,
        ..Options::default()
    };
    let mut traced = limited(args.limit, || {
        Ok(TracedCommand::launch(&args.command, &options)?)
    })?;
    trace::source::announce(&traced);
    let blind = traced.session.source().blind();
    if let Some(blind) = blind.filter(|_| options.protect.is_some()) {
        trace::notify(&format!("not protected: {}", blind.why()));
    }
    family.follow(traced.pid())?;
    let pace = WatchPace {
        every: args.every,
        length: args.length.or(args.soak),
        is_why: args.why,
    };
    let watched = trace::watch(pace, &probe, &mut traced, settings)?;
    let status = match watched.status {
        Some(status) => status,
        // Two signals ask the check to leave. It started the program, so the program must not
        // outlive it.
        None => {
            traced.signal(Signal::KILL)?;
            traced.wait()?
        }
    };
    let traced = (&mut traced, status);
    let proof = conclude(args, settings, traced, &watched, &mut family)?;
    Ok((proof, watched.whys()))
}

/// Judges what an ended program left.
fn conclude(
    args: &CheckArgs,
    settings: &RuleSettings,
    (traced, status): (&mut TracedCommand, ExitStatus),
    watched: &WatchOutcome<'_>,
    family: &mut Family,
) -> anyhow::Result<Proof> {
    let leave = &args.leave;
    let processes = start::left(family, leave, &leave.allow_process, &mut traced.session);
    let detail = if args.reports.json {
        SiteDetail::Every
    } else {
        SiteDetail::Held
    };
    let state = traced.session.finish(detail, watched.status.is_some())?;
    let report = trace::report(&state, watched, (traced.pid(), &args.command), settings);
    let end = ProgramEnd {
        pid: traced.pid(),
        status: own_code(watched, status),
        was_signalled: status.signal().is_some() || watched.was_ended,
        traces: &report.traced,
        tables: &traced.session.tables()?,
        watch: watched.watch(),
        piles: state.piles,
        processes,
        strict: leave.strict,
    };
    let evidence = end.evidence(report.diagnosis, &|process, one| {
        watched.names.name(process, one)
    });
    Ok(Proof::new(evidence, &leave.allow, settings))
}

/// The program's own exit code; 0 if fdguard ended it when its time was up.
fn own_code(watched: &WatchOutcome<'_>, status: ExitStatus) -> u8 {
    if watched.was_ended {
        0
    } else {
        code_of(status)
    }
}

/// Runs this with another soft descriptor limit, which a program started in it inherits.
pub(super) fn limited<T>(
    limit: Option<u64>,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(limit) = limit else {
        return work();
    };
    let before = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(limit),
            maximum: before.maximum,
        },
    )?;
    let done = work();
    setrlimit(Resource::Nofile, before)?;
    done
}
