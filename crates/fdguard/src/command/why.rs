//! `fdguard why`: which object holds each descriptor, and what keeps it alive?

use std::io::Write as _;
use std::time::{Duration, Instant};

use fdguard_core::Pid;
use fdguard_process::signals::Signals;
use fdguard_trace::{
    AttachedTrace, HeapWatch, ObservedTrace, Options, ProcessWhy, TraceSession, expected_stop,
};

use super::pick;
use super::trace::attach::{attach_to, leave};
use crate::cli::WhyArgs;
use crate::exit::{self, HintedError};
use crate::output;
use crate::report::why;
use crate::terminal;

/// Between two looks at a program whose new descriptors are awaited.
const LOOK: Duration = Duration::from_millis(250);
/// New descriptors that make another walk worth while.
const ENOUGH: usize = 4;
/// How long to wait for uses of descriptors.
const USES: Duration = Duration::from_secs(3);

pub(super) fn run(args: &WhyArgs) -> anyhow::Result<u8> {
    let Some(pid) = pick::pick_one(args.pid, &args.groups, "why")? else {
        return Err(HintedError::usage("no process given", "run fdguard why PID").into());
    };
    let answers = match ObservedTrace::find(pid) {
        Ok(observed) => answer(&mut observed.session(), pid, args, || false)?,
        Err(_) => attached(pid, args)?,
    };
    let of_pid: Vec<ProcessWhy> = answers.into_iter().filter(|one| one.pid == pid).collect();
    if of_pid.iter().all(|one| one.sites.is_empty()) {
        let refusal = of_pid.first().and_then(|one| one.refusal.as_deref());
        return Err(no_answer(pid, refusal).into());
    }
    if args.json {
        output::emit(args.output.as_deref(), |out| {
            serde_json::to_writer(&mut *out, &why::WhyDocument::new(&of_pid))?;
            Ok(out.write_all(b"\n")?)
        })?;
    } else {
        output::emit_styled(args.output.as_deref(), |out| {
            why::write(out, &of_pid, terminal::width())
        })?;
    }
    Ok(exit::CLEAN)
}

/// Why nothing can be said of the process.
fn no_answer(pid: u32, refusal: Option<&str>) -> HintedError {
    let (reason, way) = match refusal {
        Some(refusal) => refusal.split_once(": ").unwrap_or((refusal, "")),
        None => (
            "nothing that it holds was seen",
            "ask again while it runs, or start it with fdguard trace --why -- COMMAND",
        ),
    };
    HintedError::look(format!("process {pid}: {reason}"), way)
}

/// A program that nobody traces is attached to, and left again.
fn attached(pid: Pid, args: &WhyArgs) -> anyhow::Result<Vec<ProcessWhy>> {
    let signals = Signals::listen_for_end()?;
    let options = Options {
        users: true,
        ..Options::default()
    };
    let mut attached: AttachedTrace = attach_to(&[pid], &options, &signals)?;
    let answers = answer(&mut attached.session, pid, args, || signals.is_pending());
    leave(&attached);
    answers
}

/// Walks once, and for plain numbers once more after new descriptors were opened.
fn answer(
    session: &mut TraceSession,
    pid: Pid,
    args: &WhyArgs,
    is_stopped: impl Fn() -> bool,
) -> anyhow::Result<Vec<ProcessWhy>> {
    let mut watch = match args.force {
        true => HeapWatch::forced(),
        false => HeapWatch::default(),
    };
    if args.force
        && let Some(expected) = expected_stop(pid)
    {
        let line = format!("fdguard: process {pid}: {expected}\n");
        std::io::stderr().write_all(line.as_bytes())?;
    }
    session.poll()?;
    watch.finish_one(session, pid);
    let began = Instant::now();
    while watch.wants_uses() && began.elapsed() < USES.min(args.wait) && !is_stopped() {
        std::thread::sleep(LOOK);
        session.poll()?;
        watch.finish_one(session, pid);
    }
    let end = Instant::now() + args.wait;
    let mut walked = session.open_count(pid);
    while watch.wants_more() && Instant::now() < end && !is_stopped() {
        std::thread::sleep(LOOK);
        session.poll()?;
        let now = session.open_count(pid);
        if now >= walked + ENOUGH {
            walked = now;
            watch.finish_one(session, pid);
            if !watch.wants_lines() {
                break;
            }
        }
    }
    Ok(watch.answers())
}
