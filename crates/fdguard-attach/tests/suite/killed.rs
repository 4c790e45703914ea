//! A tracer that is killed at any step leaves a working program, and the next one cleans up.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fdguard_attach::{Error, Step, Target};
use fdguard_proc::auxv;

use super::victim::{Answer, Borrowed, enter, library};

/// A first call has this many steps at least: three stops.
const LEAST_STEPS: usize = 30;
/// More than any call has.
const MOST_STEPS: usize = 200;
/// On a busy machine no thread may be ready to be borrowed in time. That is an ordinary answer,
/// and the step is tried again, so often at most.
const MOST_TRIES: usize = 20;

/// Before the registers are changed, the kernel has already answered EINTR to some calls.
fn may_be_interrupted(kind: &str, step: &str) -> bool {
    let early = ["Stopped", "Judged", "Saved", "Planted", "Filled"];
    ["epoll_wait", "recv_limited"].contains(&kind) && early.contains(&step)
}

/// Kills a tracer at each of its steps, each time with a new victim. Some run side by side, because
/// they sleep.
fn killed_at_every_step(kind: &str) {
    let plain = Borrowed::start(kind).finish();
    let (next, whole) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _worker in 0..4 {
            scope.spawn(|| {
                while whole.load(Ordering::Relaxed) == 0 {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    assert!(at < MOST_STEPS, "{kind}: the call does not end");
                    if !killed_at(kind, at, &plain) {
                        whole.store(at, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let steps = whole.into_inner();
    assert!(steps >= LEAST_STEPS, "{kind}: only {steps} steps");
}

/// Returns whether the tracer had so many steps.
fn killed_at(kind: &str, at: usize, plain: &Answer) -> bool {
    let mut tries = (0..MOST_TRIES).filter_map(|_| try_to_kill_at(kind, at, plain));
    tries.next().unwrap()
}

/// The same; `None` if the tracer found no thread to borrow.
fn try_to_kill_at(kind: &str, at: usize, plain: &Answer) -> Option<bool> {
    let mut victim = Borrowed::start(kind);
    if kind != "checksum" {
        victim.wait_until_it_waits();
    }
    let original = start_code(victim.pid()).unwrap();
    let output = enter(victim.pid())
        .env("KILL_AT", at.to_string())
        .output()
        .unwrap();
    if output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        let is_refused = said.contains(&Error::NoThread.to_string());
        assert!(
            is_refused || said.starts_with("returned "),
            "{kind}: {said}"
        );
        let answer = victim.finish().outcome();
        let was_stopped = is_refused && may_be_interrupted(kind, "Stopped");
        if !(was_stopped && answer == (-1, 4)) {
            assert_eq!(answer, plain.outcome(), "{kind}: {said}");
        }
        return (!is_refused).then_some(false);
    }
    let step = String::from_utf8(output.stdout).unwrap();
    let said = step.clone();
    let step = step.trim_end().lines().last().unwrap();
    let interrupted = may_be_interrupted(kind, step);
    if !interrupted {
        let found = cleaned(&victim);
        // One that sleeps ends by itself.
        let is_over = kind == "nanosleep" && !victim.is_alive();
        if !is_over {
            let found = found.unwrap_or_else(|error| panic!("{kind} {at} {said}: {error}"));
            assert!(found.calls >= 1, "{kind} {at} {step}");
            assert_eq!(found.pages, 0, "{kind} {at} {step}");
            assert_eq!(found.code, original, "{kind} {at} {step}");
        }
    }
    let answer = victim.finish();
    if !(interrupted && answer.outcome() == (-1, 4)) {
        assert_eq!(answer.outcome(), plain.outcome(), "{kind} {at} {step}");
    }
    Some(true)
}

/// What the next call finds.
struct Cleaned {
    /// What it returned.
    calls: i32,
    pages: usize,
    code: Vec<u8>,
}

fn cleaned(victim: &Borrowed) -> Result<Cleaned, Box<dyn std::error::Error>> {
    let mut calls = (0..MOST_TRIES).map(|_| victim.call(c"count"));
    let call = calls.find(|call| !matches!(call, Err(Error::NoThread)));
    Ok(Cleaned {
        calls: call.ok_or(Error::NoThread)??.returned,
        pages: victim.try_scratch_pages()?,
        code: start_code(victim.pid())?,
    })
}

/// The first instructions of the program.
fn start_code(pid: u32) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    let auxv = fs::read(format!("/proc/{pid}/auxv"))?;
    let entry = auxv::value(&auxv, auxv::ENTRY).ok_or(io::ErrorKind::NotFound)?;
    let mut code = vec![0; 32];
    let memory = fs::File::open(format!("/proc/{pid}/mem"))?;
    memory.read_exact_at(&mut code, entry)?;
    Ok(code)
}

#[test]
fn while_it_polls() {
    killed_at_every_step("poll");
}

#[test]
fn while_it_sleeps() {
    killed_at_every_step("nanosleep");
}

#[test]
fn while_it_reads() {
    killed_at_every_step("read");
}

#[test]
fn while_it_waits_for_events() {
    killed_at_every_step("epoll_wait");
}

#[test]
fn while_it_waits_for_a_condition() {
    killed_at_every_step("cond_wait");
}

#[test]
fn while_it_receives_with_a_limit() {
    killed_at_every_step("recv_limited");
}

#[test]
fn while_it_computes() {
    killed_at_every_step("checksum");
}

#[test]
fn a_program_that_ends_meanwhile() {
    for at in 0..MOST_STEPS {
        let mut tries = (0..MOST_TRIES).filter_map(|_| try_to_end_at(at));
        if !tries.next().unwrap() {
            assert!(at >= LEAST_STEPS);
            return;
        }
    }
    panic!("the call does not end");
}

/// Ends the program at a step of the tracer; returns whether the tracer had so many, and `None` if
/// it found no thread to borrow.
fn try_to_end_at(at: usize) -> Option<bool> {
    let mut victim = Borrowed::start("read");
    victim.wait_until_it_waits();
    let target = Target::examine(victim.pid()).unwrap();
    let pid = rustix::process::Pid::from_raw(victim.pid().cast_signed()).unwrap();
    let (steps, is_done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let end = |step| {
        let is_now = steps.fetch_add(1, Ordering::Relaxed) == at;
        if step == Step::Done {
            is_done.store(1, Ordering::Relaxed);
        }
        if is_now {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    };
    let called = target.call_observed(&library(), c"count", b"", &end);
    let is_fine = match &called {
        Ok(_) => is_done.load(Ordering::Relaxed) == 1,
        Err(Error::NoThread) => return None,
        Err(error) => matches!(error, Error::Ended),
    };
    assert!(is_fine, "{at}: {called:?}");
    let is_killed = steps.into_inner() > at;
    if is_killed {
        // The end of an own child is left to whoever started it.
        let status = victim.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{at}: {status}");
    }
    Some(is_killed)
}

#[test]
fn a_program_that_executes_another_one_meanwhile() {
    let mut victim = Borrowed::of(Command::new("sh").args(["-c", "echo READY; read x; exec cat"]));
    victim.wait_until_it_waits();
    let target = Target::examine(victim.pid()).unwrap();
    let stdin = Mutex::new(victim.stdin.take().unwrap());
    let link = format!("/proc/{}/exe", victim.pid());
    let shell = fs::read_link(&link).unwrap();
    let execute = |step| {
        if step == Step::Copied {
            writeln!(stdin.lock().unwrap(), "go").unwrap();
            while fs::read_link(&link).unwrap() == shell {
                thread::yield_now();
            }
        }
    };
    let error = target.call_observed(&library(), c"count", b"", &execute);
    assert!(matches!(error, Err(Error::Executed)), "{error:?}");
    assert!(victim.is_alive());
}

#[test]
fn the_second_tracer_is_refused() {
    let victim = Borrowed::start("read");
    victim.wait_until_it_waits();
    let target = Target::examine(victim.pid()).unwrap();
    let second = Target::examine(victim.pid()).unwrap();
    let try_second = |step| {
        if matches!(step, Step::Seized | Step::Done) {
            let refused = second.call(&library(), c"count", b"").unwrap_err();
            assert!(matches!(refused, Error::Refused(_)), "{refused}");
        }
    };
    let call = target.call_observed(&library(), c"count", b"", &try_second);
    assert_eq!(call.unwrap().returned, 1);
    assert_eq!(victim.count(), 2);
    assert_eq!(victim.finish().outcome(), (3, 0));
}
