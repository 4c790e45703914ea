//! A tracer that is killed at any step leaves a working program, and the next one cleans up.

use std::fs;

use fdguard_attach::{Error, Step, Target};

use super::victim::{Borrowed, enter, library};

/// Before the registers are changed, the kernel has already answered EINTR to some calls.
fn may_be_interrupted(kind: &str, step: Step) -> bool {
    let early = [Step::Stopped, Step::Judged, Step::Saved, Step::Planted];
    ["epoll_wait", "recv_limited"].contains(&kind) && early.contains(&step)
}

fn killed_at_every_step(kind: &str) {
    let plain = Borrowed::start(kind).finish();
    for step in Step::ALL {
        let mut victim = Borrowed::start(kind);
        if kind != "checksum" {
            victim.wait_until_it_waits();
        }
        let original = start_code(victim.pid());
        let output = enter(victim.pid())
            .env("KILL_AT", format!("{step:?}"))
            .output()
            .unwrap();
        assert!(!output.status.success(), "{kind} {step:?}: {output:?}");
        let interrupted = may_be_interrupted(kind, step);
        if !interrupted {
            assert!(victim.is_alive(), "{kind} {step:?}");
            assert!(victim.count() >= 1, "{kind} {step:?}");
            assert_eq!(victim.scratch_pages(), 0, "{kind} {step:?}");
            assert_eq!(start_code(victim.pid()), original, "{kind} {step:?}");
        }
        let answer = victim.finish();
        if !(interrupted && answer.outcome() == (-1, 4)) {
            assert_eq!(answer.outcome(), plain.outcome(), "{kind} {step:?}");
        }
    }
}

/// The first instructions of the program.
fn start_code(pid: u32) -> Vec<u8> {
    use std::os::unix::fs::FileExt as _;
    let auxv = fs::read(format!("/proc/{pid}/auxv")).unwrap();
    let words: Vec<u64> = auxv
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let entry = words.chunks_exact(2).find(|pair| pair[0] == 9).unwrap()[1];
    let mut code = vec![0; 32];
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    memory.read_exact_at(&mut code, entry).unwrap();
    code
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
    for step in Step::ALL {
        let victim = Borrowed::start("read");
        victim.wait_until_it_waits();
        let target = Target::examine(victim.pid()).unwrap();
        let pid = rustix::process::Pid::from_raw(victim.pid().cast_signed()).unwrap();
        let end = |now| {
            if now == step {
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
        };
        let called = target.call_observed(&library(), c"count", b"", &end);
        let is_fine = match &called {
            Ok(_) => matches!(step, Step::Detached | Step::Code | Step::Registers),
            Err(error) => matches!(error, Error::Ended | Error::Refused(_)),
        };
        assert!(is_fine, "{step:?}: {called:?}");
    }
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
