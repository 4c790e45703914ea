//! Runs a program to its end under the tracer.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use fdguard_core::rule::RuleSettings;
use fdguard_diagnose::check::{ProgramEnd, Proof};
use fdguard_diagnose::watching::LiveWatch;
use fdguard_probe::Probe;
use fdguard_trace::{Options, SiteDetail, Symbols, TracedCommand};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::family::Family;
use super::{code_of, start};
use crate::cli::CheckArgs;
use crate::command::trace::{self, WatchOutcome};
use crate::report::trace::TraceReport;

/// Runs the program and judges what it left.
pub(super) fn run(args: &CheckArgs, settings: &RuleSettings) -> anyhow::Result<Proof> {
    let probe = Probe::new()?;
    let mut family = Family::start()?;
    let protection = args.protect.protection();
    let is_protected = protection.is_some();
    let options = Options::default().keeping_ended().protecting(protection);
    let mut traced = limited(args.limit, || {
        Ok(TracedCommand::launch(&args.command, options)?)
    })?;
    if let Some(blind) = traced.blind().filter(|_| is_protected) {
        trace::notify(&format!("not protected: {}", blind.why()));
    }
    family.follow(traced.pid())?;
    let pace = (args.every, args.length.or(args.soak));
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
    conclude(args, settings, (&traced, status), &watched, &mut family)
}

/// Judges what an ended program left.
fn conclude(
    args: &CheckArgs,
    settings: &RuleSettings,
    (traced, status): (&TracedCommand, ExitStatus),
    watched: &WatchOutcome<'_>,
    family: &mut Family,
) -> anyhow::Result<Proof> {
    let leave = &args.leave;
    let processes = start::left(family, leave, &leave.allow_process, traced);
    let detail = if args.reports.json {
        SiteDetail::Every
    } else {
        SiteDetail::Held
    };
    let report = TraceReport::of_launched(watched, (traced, detail), &args.command, settings)?;
    let end = ProgramEnd {
        pid: traced.pid(),
        status: own_code(watched, status),
        was_signalled: status.signal().is_some() || watched.was_ended,
        traces: &report.traced,
        tables: &traced.tables()?,
        watch: watched.live.as_ref().map(LiveWatch::watch),
        piles: traced.child_piles(&mut Symbols::new(), true),
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
