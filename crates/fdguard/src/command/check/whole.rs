//! Runs a program to its end under the tracer.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use fdguard_core::rule::RuleSettings;
use fdguard_core::watch::Watch;
use fdguard_probe::Probe;
use fdguard_trace::{Options, SiteDetail, TracedCommand};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::baseline;
use super::ending::{self, Ending};
use super::family::Family;
use super::proof::{self, Evidence, Proof};
use super::{code_of, start};
use crate::cli::CheckArgs;
use crate::command::trace::{self, WatchOutcome};

/// Runs the program and judges what it left.
pub(super) fn run(args: &CheckArgs, settings: &RuleSettings) -> anyhow::Result<Proof> {
    let probe = Probe::new()?;
    let mut family = Family::start()?;
    let options = Options {
        keep_ended: true,
        protect: args.protect.protection(),
        ..Options::default()
    };
    let mut traced = limited(args.limit, || {
        Ok(TracedCommand::launch(&args.command, &options)?)
    })?;
    if let Some(blind) = traced
        .session
        .source()
        .blind()
        .filter(|_| options.protect.is_some())
    {
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
    conclude(args, settings, (&mut traced, status), &watched, &mut family)
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
    let (mut diagnosis, watch) = (report.diagnosis, watched.watch());
    let cut_off: Vec<u32> = processes.iter().map(|one| one.pid).collect();
    let tables = traced.session.tables()?;
    let ending = Ending {
        traces: &report.traced,
        tables: &tables,
        names: &watched.names,
        root: (traced.pid(), status.signal().is_some() || watched.was_ended),
        cut_off: &cut_off,
        strict: leave.strict,
    };
    let remains = ending::remains(&ending);
    let held = ending::held(&ending);
    let is_untold = report.traced.iter().all(|one| one.pid != traced.pid());
    let blind = is_untold && !watch.is_some_and(|watch| has_history(watch, traced.pid()));
    if blind {
        diagnosis.gaps.push(proof::too_short());
    } else if !is_untold {
        // If the end state is known, it does not matter that there was no look while it ran.
        diagnosis.gaps.retain(|gap| gap.what != "whether it leaks");
    }
    let held = held.or_else(|| {
        let mut processes = diagnosis.processes.iter();
        let opinion = processes.find(|one| one.pid == traced.pid())?;
        let classes = opinion.classes.as_ref()?.iter();
        Some(baseline::count(
            classes.map(|one| (one.class.clone(), one.count)),
        ))
    });
    let evidence = Evidence {
        diagnosis,
        remains,
        piles: state.piles,
        processes,
        status: Some(own_code(watched, status)),
        exercises: Vec::new(),
        held,
        blind,
    };
    Ok(Proof::of(evidence, &leave.allow, settings))
}

/// The program's own exit code; 0 if fdguard ended it when its time was up.
fn own_code(watched: &WatchOutcome<'_>, status: ExitStatus) -> u8 {
    if watched.was_ended {
        0
    } else {
        code_of(status)
    }
}

fn has_history(watch: &Watch, pid: u32) -> bool {
    let mut subjects = watch.subjects();
    subjects.any(|one| one.process.pid == pid && ending::has_history(one))
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
