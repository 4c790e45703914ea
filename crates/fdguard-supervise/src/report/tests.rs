use std::time::Duration;

use fdguard_core::{Class, Text};
use fdguard_proc::ProcKey;

use super::{RemedyReport, passed};
use crate::budget::{Excess, Measure};
use crate::lifecycle::{Again, Breach, RepeatPolicy, RestartProof};
use crate::meter::Leak;

fn breach(value: f64, first: f64) -> Breach {
    Breach {
        what: Measure::Fds,
        passed: Excess {
            pid: Some(4711),
            value,
            level: 900.0,
            wall: Some(1000.0),
            first: Some((first, Duration::from_secs(40))),
        },
        left: None,
    }
}

fn leak(proven: bool) -> Leak {
    Leak {
        pid: 4711,
        class: Some(Class::SqliteDb),
        target: Some(Text::from("/srv/agent-*.db")),
        count: 640,
        per_minute: Some(90.0),
        proven,
    }
}

fn report<'a>(breach: &'a Breach, leaks: &'a [Leak], line: Option<&'a str>) -> RemedyReport<'a> {
    RemedyReport {
        service: "web",
        breach,
        leaks,
        line,
        evidence: Some("/state/evidence-1.tar.zst"),
        command: "python3 server.py",
    }
}

fn proof(breach: &Breach) -> RestartProof {
    let instance = |pid| ProcKey {
        pid,
        start_ticks: u64::from(pid),
    };
    RestartProof {
        breach: breach.clone(),
        before: Some(instance(4711)),
        now: instance(4800),
        took: Duration::from_secs(25),
        down: Duration::from_millis(1500),
        restarts: 1,
    }
}

#[test]
fn r29_the_report_says_what_leaked_what_was_done_and_that_it_is_no_fix() {
    let breach = breach(912.0, 20.0);
    let leaks = [leak(true)];
    let said = report(&breach, &leaks, None).proven(&proof(&breach));
    assert_eq!(
        said,
        "web: 912 of 1000 descriptors open in process 4711 (level 900). Leak: 640 sqlite-db descriptors on /srv/agent-*.db open, growing by 1.5 a second. \
         Restarted: process 4800 replaced 4711 and was ready after 25 s (down for 1.5 s). A restart is not a fix: find the line with: \
         fdguard trace 4800 (evidence: /state/evidence-1.tar.zst)"
    );
}

#[test]
fn with_the_line_there_is_nothing_left_to_look_for() {
    let breach = breach(912.0, 20.0);
    let leaks = [leak(false)];
    let said = report(&breach, &leaks, Some("store.py:17"))
        .unproven("no new process was ready within 120 s");
    assert!(said.contains("Opened at store.py:17."), "{said}");
    assert!(said.contains("Suspected leak: 640 sqlite-db"), "{said}");
    assert!(
        said.contains("A restart is not a fix: look for a missing close at store.py:17"),
        "{said}"
    );
    assert!(!said.contains("fdguard trace"), "{said}");
}

fn again(breach: &Breach, after_remedy: Option<u64>, then: RepeatPolicy) -> Again {
    Again {
        breach: breach.clone(),
        after_remedy: after_remedy.map(Duration::from_secs),
        after_start: Duration::from_secs(8),
        within: Duration::from_secs(60),
        then,
    }
}

#[test]
fn r29_a_level_below_what_the_program_needs_is_told_as_such() {
    let breach = breach(912.0, 880.0);
    let said = report(&breach, &[], None).again(&again(&breach, None, RepeatPolicy::Keep));
    assert!(said.contains("This happened 8 s after its start: it already has 880 at start, so the level of 900 is too low; raise it."), "{said}");
    assert!(said.contains("It keeps running"), "{said}");
}

#[test]
fn r29_a_leak_that_is_too_fast_is_told_with_its_figures() {
    let breach = breach(920.0, 20.0);
    let said = report(&breach, &[], None).again(&again(&breach, Some(45), RepeatPolicy::Stop));
    assert!(said.contains("This happened 45 s after a restart for the same reason: it went from 20 to 920 in 40 s (22 a second), too fast for restarts to help."), "{said}");
    assert!(said.contains("stopped for good"), "{said}");
}

#[test]
fn every_measure_has_its_sentence() {
    let close_wait = "class:tcp:CLOSE_WAIT".parse().unwrap();
    for (what, value, level, said) in [
        (
            Measure::Highest,
            950.0,
            900.0,
            "descriptor 950 is open in process 4711 (level 900; select() fails from 1024 up)",
        ),
        (
            close_wait,
            150.0,
            100.0,
            "150 tcp:CLOSE_WAIT descriptors open in process 4711 (level 100)",
        ),
        (
            Measure::Growth,
            60.5,
            30.0,
            "descriptors leak at 60.5 per minute (level 30)",
        ),
        (
            Measure::Wall,
            240.0,
            300.0,
            "time to the nearest limit: 4.0 min (level 5.0 min)",
        ),
        (Measure::Zombies, 7.0, 5.0, "7 zombies not reaped (level 5)"),
        (
            Measure::Memory,
            629_145_600.0,
            536_870_912.0,
            "600 MiB of memory in use (level 512 MiB)",
        ),
        (
            Measure::Children,
            12.0,
            10.0,
            "12 processes running besides the program (level 10)",
        ),
    ] {
        let measured = Excess {
            value,
            level,
            ..breach(0.0, 0.0).passed
        };
        assert_eq!(passed(&what, &measured), said);
    }
}
