//! `fdguard run`: budgets.

use std::process::Command;

use super::running::{Running, service};

/// A service that leaks below a low limit.
fn leaking(args: &str, rate: &str) -> Running {
    leaking_after("", args, rate)
}

/// The same after these words of a shell.
fn leaking_after(words: &str, args: &str, rate: &str) -> Running {
    let script = format!(
        "ulimit -Sn 256; {words} exec \"$0\" run --raise-limit off --budget fds=40%:60% --warmup 0s --evidence off {args} -- \"$1\" leak {rate}"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_fdguard"), &service()]);
    Running::of(command)
}

#[test]
fn r29_a_leak_is_warned_of_and_restarted_and_the_newer_process_proven() {
    let mut running = leaking("", "1");
    let first = running.event("start", &[]).number("pid");
    running.event("breach_warn", &["budget=fds", "wall=256"]);
    let breach = running.event("breach", &["reason=fd_budget", "wall=256"]);
    assert_eq!(breach.number("pid"), first);
    let restart = running.event("restart", &["reason=fd_budget", "budget=fds"]);
    assert!(restart.number("count") > 150, "{}", restart.0);
    let second = running.event("start", &["restarts=1"]).number("pid");
    let proven = running.event("proven", &["A restart is not a fix"]);
    assert_eq!(
        (proven.number("pid"), proven.number("before")),
        (second, first)
    );
    // Breached again at once, the service is left alone: restarts do not help.
    let again = running.event("breach", &["again=true"]);
    assert_eq!(again.number("pid"), second);
    let (code, last) = running.stop();
    assert_eq!((code, last.number("restarts")), (0, 1));
}

#[test]
fn r29_without_restarts_the_parent_is_asked_for_one() {
    // As supervisord starts its programs. Without any supervisor it is 1: that is tested where the
    // machine, which may be a container, does not decide.
    let parent = "export SUPERVISOR_ENABLED=1;";
    let mut running = leaking_after(parent, "--restart never", "1");
    running.event("breach", &["reason=fd_budget"]);
    let (code, _) = running.ended();
    assert_eq!(code, 75);
}

#[test]
fn r28_a_low_limit_is_raised_and_told() {
    let script = "ulimit -Sn 100; exec \"$0\" run -- sh -c 'ulimit -Sn'";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_fdguard")]);
    let mut running = Running::of(command);
    let told = running.event("limit", &["from=100", "does not fix it"]);
    let to = told.value("to").to_owned();
    assert_eq!(running.line(""), to);
    assert_eq!(running.ended().0, 0);
}

#[test]
fn r29_evidence_is_written_before_the_restart_or_told_to_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    let script = "ulimit -Sn 2048; exec \"$0\" run --budget fds=10%:15% --warmup 0s --raise-limit off --evidence \"$2\" -- \"$1\" leak 1";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_fdguard"), &service()]);
    command.arg(dir.path());
    let mut running = Running::of(command);
    running.event("breach", &["reason=fd_budget"]);
    let told = running.event("evidence", &[]);
    running.event("restart", &["reason=fd_budget"]);
    running.event("proven", &[]);
    // On a busy machine it may take longer than the time limit: then the restart does not wait for
    // it.
    if let Some(place) = told.0.split(" place=").nth(1) {
        assert!(std::path::Path::new(place).is_file(), "{}", told.0);
    } else {
        assert!(told.0.contains("failed="), "{}", told.0);
    }
    println!("{}", told.0);
    assert_eq!(running.stop().0, 0);
}
