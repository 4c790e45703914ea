//! Commands as checks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::tests::{descriptors, next, reason, step};
use super::{CheckInputs, CheckSpec, CommandContext, HealthChange, HealthCheck};
use crate::poll::{Interest, Readiness};
use testkit::StoppedProcess;

fn children() -> String {
    std::fs::read_to_string("/proc/thread-self/children").unwrap()
}

fn exec(command: &str, timeout: Duration) -> HealthCheck {
    let mut spec: CheckSpec = format!("exec:{command}").parse().unwrap();
    spec.timing.period = Duration::from_millis(10);
    spec.timing.timeout = timeout;
    spec.timing.failure_threshold = 1;
    let scene = CommandContext {
        environment: std::env::vars_os().collect(),
        dir: None,
    };
    let mut check = HealthCheck::new(&spec, &Arc::new(scene)).unwrap();
    check.start(Instant::now()).unwrap();
    check
}

#[test]
fn r30_commands_are_judged_by_their_end_and_bounded() {
    let long = Duration::from_secs(60);
    assert_eq!(next(&mut exec("exit 0", long)), HealthChange::Healthy);
    let why = reason(next(&mut exec(
        "echo first; echo no database >&2; exit 7",
        long,
    )));
    assert_eq!(why, "exited with status 7: no database");
    let flood = "yes | head -c 300000; echo enough; exit 1";
    let why = reason(next(&mut exec(flood, long)));
    assert_eq!(why, "exited with status 1: enough");
    let why = reason(next(&mut exec(
        "sleep 1000 & setsid sleep 1000; exit 0",
        Duration::from_millis(300),
    )));
    assert_eq!(why, "did not finish within 300ms");
}

#[test]
fn r30_commands_leave_no_descriptor_and_no_process() {
    let before = descriptors();
    let dir = tempfile::tempdir().unwrap();
    let count = dir.path().join("count");
    let length = || std::fs::metadata(&count).map_or(0, |about| about.len());
    // Each leaves a child behind, and some do not finish in time.
    let command = format!("printf x >> {}; sleep 1000 & exit 1", count.display());
    let mut check = exec(&command, Duration::from_secs(60));
    while length() < 30 {
        step(&mut check, &CheckInputs::default());
    }
    drop(check);
    let endless = format!("printf x >> {}; sleep 1000", count.display());
    let mut check = exec(&endless, Duration::from_millis(30));
    while length() < 40 {
        step(&mut check, &CheckInputs::default());
    }
    // In flight.
    drop(check);
    assert_eq!(descriptors(), before);
    assert_eq!(children(), "");
}

#[test]
fn a_command_that_cannot_be_ended_is_told_once_and_none_is_started_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let count = dir.path().join("count");
    let line = format!(
        "printf x >> {}; echo stuck; exec sleep 1000",
        count.display()
    );
    let starts = || std::fs::metadata(&count).map_or(0, |about| about.len());
    let mut check = exec(&line, Duration::from_secs(60));
    while starts() == 0 {
        assert_eq!(step(&mut check, &CheckInputs::default()), None);
    }
    let keeper = children();
    // A stopped keeper is like a process that the kernel cannot kill: nothing is reported.
    let stuck = StoppedProcess::new(keeper.trim().parse().expect("one child"));
    let mut now = Instant::now() + Duration::from_secs(60);
    let mut told = Vec::new();
    for _ in 0..10 {
        now += Duration::from_secs(60);
        told.extend(check.poll(now, &Readiness::default(), &CheckInputs::default()));
        assert_eq!(children(), keeper, "no other one");
    }
    assert_eq!((told.len(), starts()), (1, 1));
    let why = reason(told.remove(0));
    assert_eq!(why, "did not finish within 1m: stuck");
    drop(stuck);
    // When nothing of it is left, the next one starts.
    while starts() == 1 {
        let mut wants = Interest::default();
        check.wants(&mut wants);
        let ready = if children().is_empty() {
            Readiness::default()
        } else {
            wants.wait().unwrap()
        };
        assert_eq!(check.poll(now, &ready, &CheckInputs::default()), None);
    }
}
