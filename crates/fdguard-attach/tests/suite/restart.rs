//! No system call ends otherwise because its thread was borrowed.

use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use fdguard_attach::{Error, Step, Target};
use rustix::process::{Pid, Signal, kill_process};

use super::victim::{Borrowed, library, program};

/// How long victims wait that have a limit.
const LIMIT: Duration = Duration::from_secs(4);

/// Longer than the code waits for its tracer.
const LATE: Duration = Duration::from_millis(200);

/// Runs a victim that is entered beside one that is not.
fn compare(kind: &str) {
    let (plain, entered) = (Borrowed::start(kind), Borrowed::start(kind));
    entered.wait_until_it_waits();
    plain.wait_until_it_waits();
    assert_eq!(entered.count(), 1, "{kind}");
    let (plain, entered) = (plain.finish(), entered.finish());
    assert_eq!(entered.outcome(), plain.outcome(), "{kind}");
}

#[test]
fn calls_that_the_kernel_restarts() {
    let kinds = [
        "read",
        "readv",
        "accept",
        "recv",
        "recvmsg",
        "wait4",
        "waitid",
        "flock",
        "setlkw",
        "cond_wait",
        "sem_wait",
    ];
    kinds.into_iter().for_each(compare);
}

#[test]
fn calls_that_the_kernel_restarts_unless_a_handler_runs() {
    let kinds = [
        "select",
        "pselect",
        "ppoll",
        "poll",
        "sigsuspend",
        "pause",
        "msgrcv",
    ];
    kinds.into_iter().for_each(compare);
}

#[test]
fn calls_that_would_return_eintr() {
    let kinds = [
        "epoll_wait",
        "epoll_limited",
        "epoll_pwait",
        "recv_limited",
        "semop",
        "sigwaitinfo",
        "sigtimedwait",
    ];
    kinds.into_iter().for_each(compare);
}

/// Regression: the code in the program does not wait for a tracer that gets no processor. The call
/// that it went on with was interrupted once more, and nobody restarted it.
#[test]
fn calls_that_were_made_again_before_the_tracer_came_back() {
    for kind in [
        "epoll_wait",
        "recv_limited",
        "semop",
        "sigwaitinfo",
        "poll",
        "read",
    ] {
        let (plain, entered) = (Borrowed::start(kind), Borrowed::start(kind));
        entered.wait_until_it_waits();
        let target = Target::examine(entered.pid()).unwrap();
        let late = |step| {
            if step == Step::Done {
                thread::sleep(LATE);
            }
        };
        let call = target.call_observed(&library(), c"count", b"", &late);
        assert_eq!(call.unwrap().returned, 1, "{kind}");
        plain.wait_until_it_waits();
        let (plain, entered) = (plain.finish(), entered.finish());
        assert_eq!(entered.outcome(), plain.outcome(), "{kind}");
    }
}

/// A signal that a program ignores reaches a thread that is traced, and interrupts its call.
#[test]
fn signals_that_are_ignored_change_nothing() {
    for kind in ["epoll_wait", "recv_limited", "semop"] {
        let (plain, entered) = (Borrowed::start(kind), Borrowed::start(kind));
        entered.wait_until_it_waits();
        let pid = Pid::from_raw(entered.pid().cast_signed()).unwrap();
        let target = Target::examine(entered.pid()).unwrap();
        let mut calls = 0;
        loop {
            let steps = AtomicI32::new(0);
            let send = |_step| {
                if steps.fetch_add(1, Ordering::Relaxed) == calls {
                    // Its default is to be ignored.
                    kill_process(pid, Signal::WINCH).unwrap();
                }
            };
            let call = target.call_observed(&library(), c"count", b"", &send);
            assert_eq!(call.unwrap().returned, calls + 1, "{kind}");
            calls += 1;
            if steps.into_inner() < calls {
                break;
            }
        }
        plain.wait_until_it_waits();
        let (plain, entered) = (plain.finish(), entered.finish());
        assert_eq!(entered.outcome(), plain.outcome(), "{kind}");
    }
}

#[test]
fn timeouts_stay_exact() {
    let kinds = [
        "poll_timeout",
        "select_timeout",
        "nanosleep",
        "clock_nanosleep",
        "cond_timedwait",
        "sem_timedwait",
        "timerfd",
    ];
    thread::scope(|scope| {
        for kind in kinds {
            scope.spawn(move || {
                let mut command = Command::new(program());
                let limit = LIMIT.as_millis().to_string();
                let mut victim = Borrowed::of(command.arg(kind).env("BORROWED_LIMIT", limit));
                // Half of the time: one that began again would end half of it too late.
                thread::sleep(LIMIT / 2);
                assert_eq!(victim.count(), 1, "{kind}");
                let time = Duration::from_millis(victim.answer().milliseconds);
                let early = LIMIT.saturating_sub(Duration::from_millis(10));
                assert!(
                    (early..LIMIT * 7 / 5).contains(&time),
                    "{kind} took {time:?}"
                );
            });
        }
    });
}

#[test]
fn a_thread_that_writes_is_not_borrowed() {
    let victim = Borrowed::start("write");
    victim.wait_until_it_waits();
    let error = victim.call(c"count").unwrap_err();
    assert!(matches!(error, Error::NoThread), "{error}");
    assert_eq!(victim.finish().outcome(), (5000, 0));
}

#[test]
fn signals_stay_blocked_and_pending() {
    compare("pending");
    let victim = Borrowed::start("pending");
    victim.wait_until_it_waits();
    for calls in 1..=20 {
        assert_eq!(victim.count(), calls);
    }
    assert_eq!(
        victim.finish().result,
        11,
        "pending, blocked, nothing else blocked or handled"
    );
}

#[test]
fn a_program_with_many_signals_is_entered() {
    let victim = Borrowed::start("alarms");
    for calls in 1..=20 {
        assert_eq!(victim.count(), calls);
    }
    assert_eq!(victim.finish().outcome(), (3, 0));
}

#[test]
fn a_signal_right_after_a_call_ends_the_wait() {
    for _attempt in 0..20 {
        let mut victim = Borrowed::start("flag");
        victim.wait_until_it_waits();
        assert_eq!(victim.count(), 1);
        let pid = Pid::from_raw(victim.pid().cast_signed()).unwrap();
        kill_process(pid, Signal::USR1).unwrap();
        assert_eq!(victim.answer().outcome(), (0, 0));
    }
}

#[test]
fn errno_and_extended_state_are_kept() {
    let victim = Borrowed::start("checksum");
    for calls in 1..=20 {
        assert_eq!(victim.count(), calls);
    }
    assert_eq!(victim.finish().outcome(), (42, 0));
}
