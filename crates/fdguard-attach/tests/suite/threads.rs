//! Which thread is borrowed, and what happens if none can be.

use std::process::Command;

use fdguard_attach::{Error, Refusal, Target};

use super::victim::{Borrowed, library};

#[test]
fn an_argument_arrives_and_the_library_is_loaded_once() {
    let victim = Borrowed::start("read");
    victim.wait_until_it_waits();
    let target = Target::examine(victim.pid()).unwrap();
    let bytes = vec![3_u8; 10_000];
    let sum = target.call(&library(), c"sum", &bytes).unwrap();
    assert_eq!(sum.returned, 30_000);
    for calls in 1..=3 {
        let call = target.call(&library(), c"count", b"").unwrap();
        assert_eq!((call.returned, call.thread), (calls, victim.pid()));
        assert!(!call.stop.is_zero());
    }
    // Another library: other bytes, and functions of its own.
    let mut other = library();
    other.push(0);
    assert_eq!(target.call(&other, c"count", b"").unwrap().returned, 1);
    assert_eq!(target.call(&library(), c"count", b"").unwrap().returned, 4);
    let error = target.call(&library(), c"absent", b"").unwrap_err();
    assert!(matches!(error, Error::NoFunction { .. }), "{error}");
    let error = target.call(b"no library", c"count", b"").unwrap_err();
    assert!(matches!(error, Error::NotLoaded { .. }), "{error}");
    let descriptors = testkit::listed(victim.pid());
    assert_eq!(victim.scratch_pages(), 0);
    assert_eq!(target.call(&library(), c"count", b"").unwrap().returned, 5);
    assert_eq!(testkit::listed(victim.pid()), descriptors);
    assert_eq!(victim.finish().outcome(), (3, 0));
}

#[test]
fn a_fault_of_the_library_does_not_end_the_program() {
    let victim = Borrowed::start("read");
    victim.wait_until_it_waits();
    let error = victim.call(c"fault").unwrap_err();
    assert!(matches!(error, Error::Fault { signal: 11 }), "{error}");
    assert_eq!(victim.count(), 1);
    assert_eq!(victim.finish().outcome(), (3, 0));
}

#[test]
fn busy_loops_are_entered() {
    for kind in ["checksum", "files"] {
        let victim = Borrowed::start(kind);
        for calls in 1..=20 {
            assert_eq!(victim.count(), calls, "{kind}");
        }
        assert!(victim.finish().result >= 0);
    }
}

#[test]
fn five_threads_under_stress_are_entered_a_hundred_times() {
    let victim = Borrowed::start("stress");
    let target = Target::examine(victim.pid()).unwrap();
    let mut calls = 0;
    for _attempt in 0..100 {
        calls += 1;
        let call = target.call(&library(), c"count", b"").unwrap();
        assert_eq!(call.returned, calls);
    }
    assert_eq!(victim.finish().outcome(), (0, 0));
}

#[test]
fn a_thread_in_the_allocator_is_refused_or_entered_but_never_hung() {
    let victim = Borrowed::start("malloc");
    let mut entered = 0;
    for _attempt in 0..4 {
        match victim.call(c"count") {
            Ok(call) => {
                entered += 1;
                assert_eq!(call.returned, entered);
            }
            Err(Error::NoSafeThread { function, tries }) => {
                assert!(!function.is_empty() && tries > 1, "{function} {tries}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(victim.finish().outcome(), (0, 0));
}

/// A victim whose program defines `malloc`.
fn with_own_allocator(kind: &str) -> Borrowed {
    let flags = [
        "-g",
        "-O1",
        "-DOWN_MALLOC",
        "-fno-builtin",
        "-Wl,--no-as-needed",
        "-lm",
    ];
    let program = testkit::c_variant("borrowed", "own", &flags).unwrap();
    Borrowed::of(Command::new(program).arg(kind))
}

#[test]
fn a_program_with_its_own_allocator_is_entered_while_it_waits() {
    for kind in [
        "read",
        "epoll_wait",
        "nanosleep",
        "cond_wait",
        "sem_wait",
        "poll",
    ] {
        let victim = with_own_allocator(kind);
        victim.wait_until_it_waits();
        assert_eq!(victim.count(), 1, "{kind}");
        assert!(victim.finish().result >= 0, "{kind}");
    }
    let victim = with_own_allocator("malloc");
    for _attempt in 0..3 {
        let error = victim.call(c"count").unwrap_err();
        assert!(matches!(error, Error::NoSafeThread { .. }), "{error}");
        assert_eq!(victim.scratch_pages(), 0);
    }
    assert_eq!(victim.finish().outcome(), (0, 0));
}

#[test]
fn a_function_that_takes_too_long_is_left_alone() {
    let victim = Borrowed::start("read");
    victim.wait_until_it_waits();
    let error = victim.call(c"tarry").unwrap_err();
    assert!(matches!(error, Error::Limit), "{error}");
    assert_eq!(victim.scratch_pages(), 1, "its thread is still inside");
    let calls = loop {
        match victim.call(c"count") {
            Ok(call) => break call.returned,
            Err(Error::Refused(Refusal::Unfinished)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!((calls, victim.scratch_pages()), (2, 0));
    assert_eq!(victim.finish().outcome(), (3, 0));
}

#[test]
fn a_crowd_of_forty_threads_is_entered() {
    let victim = Borrowed::start("crowd");
    for calls in 1..=10 {
        assert_eq!(victim.count(), calls);
    }
    assert_eq!(victim.finish().outcome(), (0, 0));
}

/// Each time that a stopped thread must run for the tracer, it waits for a processor on a busy
/// machine: this is what a stop costs there, and it can be counted. Three stops: memory is mapped
/// and made writable (a system call takes two waits), the function is called, memory is unmapped.
#[test]
fn a_call_makes_three_stops_and_waits_eleven_times() {
    for kind in ["read", "poll", "cond_wait", "epoll_wait"] {
        let victim = Borrowed::start(kind);
        victim.wait_until_it_waits();
        // The first call reads the tables and loads the library, the second finds both.
        let target = Target::examine(victim.pid()).unwrap();
        for _ in 0..2 {
            let call = target.call(&library(), c"count", b"").unwrap();
            assert_eq!((call.stops, call.waits), (3, 11), "{kind}: {call:?}");
            assert_eq!(call.tries, 1, "{kind}: {call:?}");
        }
        victim.finish();
    }
}
