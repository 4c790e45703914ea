//! `fdguard run`: signals, and ends that leave nothing behind.

use rustix::process::Signal;

use super::running::{Running, await_end, free_port, is_alive, service, signal};

/// A tree with members that escape groups, sessions and parents. Each prints its pid.
const TREE: &str = "echo member $$
setsid sh -c 'echo member $$; exec sleep 1000' &
sh -c 'setsid sh -c \"echo member \\$\\$; exec sleep 1000\" & exit 0'
trap '' USR1
sleep 1000 & echo member $!
wait; wait; wait; sleep 1000";

fn members(running: &mut Running, count: usize) -> Vec<u32> {
    let mut pids = Vec::new();
    while pids.len() < count {
        pids.push(running.line("member ").parse().unwrap());
    }
    pids
}

#[test]
fn r31_a_stop_leaves_nothing_behind() {
    let mut running = Running::start(["--stop-grace", "30s", "--", "sh", "-c", TREE]);
    let pids = members(&mut running, 4);
    let (code, last) = running.stop();
    assert_eq!((code, last.value("survivors")), (0, "0"));
    let left: Vec<&u32> = pids.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn r31_a_killed_supervisor_leaves_nothing_behind() {
    let mut running = Running::start(["--", "sh", "-c", TREE]);
    let pids = members(&mut running, 4);
    running.signal(Signal::KILL);
    running.wait();
    for pid in pids {
        await_end(pid);
        assert!(!is_alive(pid));
    }
}

#[test]
fn r31_one_that_does_not_end_is_killed_after_its_grace() {
    let mut running = Running::start(["--stop-grace", "200ms", "--", &*service(), "stubborn"]);
    let pid: u32 = running.line("stubborn ").parse().unwrap();
    let (code, last) = running.stop();
    assert_eq!((code, last.number("killed")), (0, 1));
    assert!(!is_alive(pid));
}

/// Regression: it hung on TERM and on two INTs.
#[test]
fn a_program_that_stops_its_keeper_again_and_again_is_ended_all_the_same() {
    let stops =
        "echo member $$; (trap '' TERM; while :; do kill -STOP $PPID; done) & echo member $!; wait";
    for signals in [&[Signal::TERM][..], &[Signal::INT, Signal::INT]] {
        let mut running = Running::start(["--stop-grace", "200ms", "--", "sh", "-c", stops]);
        let pids = members(&mut running, 2);
        for signal in signals {
            running.signal(*signal);
            running.event("stopping", &[]);
        }
        let (code, last) = running.ended();
        assert_eq!((code, last.value("survivors")), (0, "0"));
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    }
}

/// Regression: the end of the service went unnoticed because its keeper could not report it.
#[test]
fn a_stopped_keeper_does_not_hide_that_the_service_died() {
    let script = "trap 'kill -STOP $PPID; exit 3' USR2; echo up; while :; do sleep 0.05; done";
    let mut running = Running::start(["--restart", "never", "--", "sh", "-c", script]);
    running.line("up");
    running.signal(Signal::USR2);
    running.event("exit", &["status=3"]);
    assert_eq!(running.ended().0, 3);
}

#[test]
fn a_second_interrupt_waits_for_nobody() {
    let mut running = Running::start(["--stop-grace", "1h", "--", &*service(), "stubborn"]);
    let pid: u32 = running.line("stubborn ").parse().unwrap();
    running.signal(Signal::INT);
    running.event("stopping", &["why=SIGINT"]);
    running.signal(Signal::INT);
    running.event("stopping", &["kill=true"]);
    assert_eq!(running.ended().0, 0);
    assert!(!is_alive(pid));
}

#[test]
fn signals_that_are_not_ours_are_the_programs() {
    let mut running = Running::start(["--", &*service(), "catch"]);
    let pid: u32 = running.line("catching ").parse().unwrap();
    running.signal(Signal::USR2);
    assert_eq!(running.line("caught "), "12");
    running.signal(Signal::WINCH);
    assert_eq!(running.line("caught "), "28");
    running.signal(Signal::QUIT);
    running.event("state", &["uptime_s="]);
    let told = running.event("state", &["state=ready"]);
    assert_eq!(told.number("pid"), pid);
    assert_eq!(running.stop().0, 0);
}

#[test]
fn around_one_run_every_signal_is_the_programs() {
    let mut running = Running::start(["--once", "--", &*service(), "catch"]);
    running.line("catching ");
    running.signal(Signal::QUIT);
    assert_eq!(running.line("caught "), "03");
    running.signal(Signal::HUP);
    assert_eq!(running.line("caught "), "01");
    running.signal(Signal::INT);
    assert_eq!(running.line("caught "), "02");
    running.signal(Signal::USR1);
    assert_eq!(running.line("caught "), "10");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(143));
    let mut running = Running::start(["--once", "--", &*service(), "stubborn"]);
    running.line("stubborn ");
    running.signal(Signal::INT);
    running.signal(Signal::QUIT);
    assert_eq!(
        running.wait().code(),
        Some(131),
        "only what was sent reaches it"
    );
    let mut running = Running::start(["--once", "--", &*service(), "catch"]);
    running.line("catching ");
    running.signal(Signal::INT);
    assert_eq!(running.line("caught "), "02");
    running.signal(Signal::INT);
    assert_eq!(running.wait().code(), Some(137), "the second ends it");
}

#[test]
fn a_restart_works_when_our_own_table_is_full() {
    let script = "ulimit -n 20; exec \"$0\" run --backoff off --crash-loop off -- \"$1\" stamp";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_fdguard"), &service()]);
    let mut running = Running::of(command);
    let mut pid = running.event("start", &[]).number("pid");
    for _ in 0..5 {
        signal(pid, Signal::KILL);
        pid = running.event("start", &[]).number("pid");
    }
    let (code, last) = running.stop();
    assert_eq!((code, last.number("restarts")), (0, 5));
}

fn background(mode: &str) -> (Running, u32) {
    let port = free_port().to_string();
    let args = ["--background", mode, "--", &*service(), "daemon", &*port];
    let mut running = Running::start(args);
    let daemon = running.line("daemon ").parse().unwrap();
    (running, daemon)
}

#[test]
fn r23_a_server_in_the_background_is_adopted_and_ended_with_us() {
    let (mut running, daemon) = background("adopt");
    running.event("background", &["action=adopted", "listening=127.0.0.1:"]);
    assert_eq!(running.event("adopted", &[]).number("pid"), daemon);
    assert!(is_alive(daemon));
    let (code, last) = running.stop();
    assert_eq!((code, last.number("restarts")), (0, 0));
    assert!(!is_alive(daemon));
}

#[test]
fn r23_the_end_of_an_adopted_server_is_the_services() {
    let (mut running, daemon) = background("adopt");
    running.event("adopted", &[]);
    signal(daemon, Signal::KILL);
    running.event("restart", &["restarts=1"]);
    let next: u32 = running.line("daemon ").parse().unwrap();
    running.event("adopted", &[]);
    assert!(next != daemon && is_alive(next));
    assert_eq!(running.stop().0, 0);
    assert!(!is_alive(next));
}

#[test]
fn r23_a_server_in_the_background_is_ended_or_a_failure_where_asked() {
    for (mode, code) in [("end", 0), ("fail", 1)] {
        let (mut running, daemon) = background(mode);
        running.event("orphans", &["count=1", "action=ended"]);
        assert_eq!(running.ended().0, code, "{mode}");
        assert!(!is_alive(daemon), "{mode}");
    }
}

#[test]
fn r23_the_bootstrap_of_leakbench_is_contained() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let start = dir.join("../../leakbench/open/py-bootstrap-orphan/start");
    for args in [
        &["--background", "adopt"][..],
        &["--background", "end"],
        &["--background", "fail"],
        &["--once"],
    ] {
        let work = tempfile::tempdir().unwrap();
        let mut command = super::fdguard();
        command.arg("run").args(args).arg("--").arg(&start);
        command.env("LB_WORK", work.path()).env("LB_SECONDS", "600");
        let mut running = Running::of(command);
        let server = running.line("EVIDENCE server_pid=").parse().unwrap();
        match args[1..] {
            ["adopt"] => {
                running.event("adopted", &[]);
                assert!(is_alive(server));
                assert_eq!(running.stop().0, 0);
            }
            ["fail"] => assert_eq!(running.ended().0, 1),
            ["end"] => assert_eq!(running.ended().0, 0),
            _ => {
                running.event("orphans", &["action=ended"]);
                assert_eq!(running.wait().code(), Some(0));
            }
        }
        assert!(!is_alive(server), "{args:?}");
    }
}
