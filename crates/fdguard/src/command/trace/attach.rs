//! `fdguard trace PID`: attaches to programs that are already running.

use fdguard_core::Gap;
use fdguard_core::units::milliseconds;
use fdguard_probe::Probe;
use fdguard_process::signals::Signals;
use fdguard_trace::{
    AttachRefusal, AttachStep, AttachedTrace, Error, LoadRefusal, ObservedTrace, Options,
};

use super::observer::observer;
use super::run_loop::{self, notify};
use super::view;
use super::{Finished, Follower, Outputs, Owner, detail, has_findings, host, open, report, source};
use crate::cli::{Selection, TraceArgs};
use crate::command::{pick, settings};
use crate::exit::{self, HintedError};
use crate::terminal::sanitize_str;

pub(super) fn run(args: &TraceArgs, selection: &Selection) -> anyhow::Result<u8> {
    if *selection == Selection::All {
        return host::run(args);
    }
    source::for_attach(args.source)?;
    let probe = Probe::new()?;
    let pids = pick::pick(&probe, selection)?;
    // A program that is already traced is read, not entered a second time.
    if let [pid] = pids[..]
        && !args.follow
        && args.source.is_none()
        && ObservedTrace::find(pid).is_ok()
    {
        return report::run(args, pid);
    }
    attach(args, &probe, &pids)
}

fn attach(args: &TraceArgs, probe: &Probe, pids: &[u32]) -> anyhow::Result<u8> {
    let settings = settings::settings(&args.settings)?;
    if args.live {
        view::check_own()?;
    }
    let outputs = Outputs::open(args)?;
    let mut follower = match args.follow {
        true => Some(Follower::new(args, &settings)?),
        false => None,
    };
    let stream = match &follower {
        Some(follower) if !args.json => follower.stream()?,
        _ => open(args)?,
    };
    // From here on a signal ends the trace and not fdguard, which would not detach.
    let signals = Signals::listen_for_end()?;
    let mut attached = enter(pids, args, &signals)?;
    let mut observer = observer(args, &settings, follower.as_mut());
    let pace = super::pace(args);
    let traced = (&mut attached, signals);
    let watched = run_loop::watch_attached(pace, probe, traced, &mut *observer)?;
    drop(observer);
    // The programs do not wait until their lines are looked up.
    let has_ended = attached.has_ended();
    leave(&attached);
    let state = attached.session.finish(detail(args), has_ended)?;
    let root = attached.pids().first().copied().unwrap_or_default();
    let mut report = report(&state, &watched, (root, &[]), &settings);
    let gaps = attached.refused().iter().map(refusal_gap);
    report.diagnosis.gaps.extend(gaps);
    let finished = Finished {
        report,
        piles: &state.piles,
        whys: watched.whys(),
        follower,
        outputs,
        stream,
    };
    let found = finished.write(args, &settings, Owner::Fdguard)?;
    Ok(if has_findings(&found) {
        args.error_exitcode
    } else if attached.refused().is_empty() {
        exit::CLEAN
    } else {
        exit::COULD_NOT_LOOK
    })
}

/// Attaches, and reports each step. If no process can be attached to, that is an error.
fn enter(pids: &[u32], args: &TraceArgs, signals: &Signals) -> anyhow::Result<AttachedTrace> {
    let options = Options {
        protect: args.protect.protection(),
        source: source::for_attach(args.source)?,
        no_inspector: args.no_inspector,
        users: args.why,
        ..Options::default()
    };
    attach_to(pids, &options, signals)
}

/// The same for other commands. A signal leaves the rest of the processes alone.
pub(in crate::command) fn attach_to(
    pids: &[u32],
    options: &Options,
    signals: &Signals,
) -> anyhow::Result<AttachedTrace> {
    let is_one = pids.len() == 1;
    let mut kernel: Option<LoadRefusal> = None;
    let mut on_step = |step: AttachStep<'_>| match step {
        AttachStep::NoKernel(refusal) => kernel = Some(refusal.clone()),
        // The error says it.
        AttachStep::Refused(_) if is_one => {}
        other => notify_step(&other),
    };
    let is_stopped = || signals.is_pending();
    let attached = AttachedTrace::attach(pids, options, &is_stopped, &mut on_step);
    let attached = attached.map_err(|error| match error {
        Error::Kernel(refusal) => source::refused(&refusal),
        other => other.into(),
    })?;
    if attached.pids().is_empty() {
        if let Some(received) = signals.next() {
            return Err(HintedError::signalled(received.signal).into());
        }
        return Err(none_attached(attached.refused(), kernel.as_ref()).into());
    }
    Ok(attached)
}

/// Why no process could be attached to.
fn none_attached(refused: &[AttachRefusal], kernel: Option<&LoadRefusal>) -> HintedError {
    match (refused, kernel) {
        ([one], Some(kernel)) => {
            HintedError::look(format!("{}, and {kernel}", refusal(one)), &one.failure.way)
        }
        ([one], None) => HintedError::look(refusal(one), &one.failure.way),
        (all, _) => HintedError::look(
            format!("cannot attach to any of {} processes", all.len()),
            "see the reasons above",
        ),
    }
}

/// Prints one step.
fn notify_step(step: &AttachStep<'_>) {
    match step {
        AttachStep::Begin { pid, comm } => notify(&format!(
            "attaching to {}: it stops for a few milliseconds",
            name(*pid, comm)
        )),
        AttachStep::Done { pid, comm, stop } => notify(&format!(
            "attached to {}: stopped {}",
            name(*pid, comm),
            milliseconds(*stop)
        )),
        AttachStep::OpenInspector { pid, comm, port } => notify(&format!(
            "using Node's inspector in {} on port {port} for a moment: Node prints a few lines to the program's stderr",
            name(*pid, comm)
        )),
        AttachStep::Lines {
            pid,
            comm,
            failure: None,
            stop,
        } => notify(&format!(
            "JavaScript lines of {} are recorded; its inspector is as it was{}",
            name(*pid, comm),
            if stop.is_zero() {
                String::new()
            } else {
                format!(", and it was stopped for {} more", milliseconds(*stop))
            }
        )),
        AttachStep::Lines {
            pid,
            comm,
            failure: Some(reason),
            ..
        } => notify(&format!(
            "no JavaScript lines of {}: {}",
            name(*pid, comm),
            sanitize_str(reason)
        )),
        AttachStep::ByKernel { because: None } => {
            notify("tracing by the kernel (eBPF), as requested");
        }
        AttachStep::ByKernel { because: Some(one) } => notify(&format!(
            "tracing by the kernel (eBPF): the library cannot see into {}: {}",
            name(one.pid, &one.comm),
            one.failure.reason
        )),
        AttachStep::NoKernel(_) => {}
        AttachStep::Refused(one) => {
            notify(&format!("{}\n  {}", refusal(one), one.failure.way));
        }
    }
}

/// Detaches, and reports what remains.
pub(in crate::command) fn leave(attached: &AttachedTrace) {
    for one in attached.detach() {
        notify(&format!(
            "cannot detach from {}: {}; the library stays in it and does nothing",
            name(one.pid, &one.comm),
            one.failure.reason
        ));
    }
}

/// `cannot attach to 1234 (nginx): it is statically linked`.
pub(in crate::command) fn refusal(one: &AttachRefusal) -> String {
    let name = name(one.pid, &one.comm);
    format!("cannot attach to {name}: {}", one.failure.reason)
}

/// The same in a report about the others.
pub(in crate::command) fn refusal_gap(one: &AttachRefusal) -> Gap {
    Gap::new(
        format!(
            "the lines that opened descriptors of {}",
            name(one.pid, &one.comm)
        ),
        &*one.failure.reason,
        &*one.failure.way,
    )
}

/// The same for an attach that failed altogether.
pub(in crate::command) fn error_gap(error: &anyhow::Error) -> Gap {
    let hinted = error.downcast_ref::<HintedError>();
    let way = hinted.map_or("start it with fdguard trace -- COMMAND", |hinted| {
        &hinted.hint
    });
    Gap::new("the lines that opened descriptors", error.to_string(), way)
}

fn name(pid: u32, comm: &str) -> String {
    match comm.is_empty() {
        true => pid.to_string(),
        false => format!("{pid} ({})", sanitize_str(comm)),
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_name_forges_nothing() {
        assert_eq!(name(7, ""), "7");
        assert_eq!(name(7, "a\u{1b}[2J"), "7 (a\\u{1b}[2J)");
    }
}
