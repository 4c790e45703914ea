//! `fdguard run`: a service that ends is restarted, or not.

use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use super::running::{Running, free_port, service, signal};
use super::{CommandOutput, fdguard, run};

fn now() -> i128 {
    let now = clock_gettime(ClockId::Monotonic);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

/// The start time and the pid that the service prints.
fn stamp(running: &mut Running) -> (i128, u32) {
    let line = running.line("stamp ");
    let (at, pid) = line.split_once(' ').unwrap();
    (at.parse().unwrap(), pid.parse().unwrap())
}

#[test]
fn r26_a_service_that_was_killed_is_back_at_once() {
    let args = ["--backoff", "off", "--crash-loop", "off", "--"];
    let mut running = Running::start(args.iter().copied().chain([&*service(), "stamp"]));
    let (_, mut pid) = stamp(&mut running);
    let mut took = Vec::new();
    for _ in 0..10 {
        let killed = now();
        signal(pid, Signal::KILL);
        let (began, next) = stamp(&mut running);
        assert_ne!(next, pid);
        took.push((began - killed) / 1000);
        pid = next;
    }
    took.sort_unstable();
    println!("back after {} us (the median of {took:?})", took[5]);
    // Ten milliseconds on an idle machine; this one may be busy.
    assert!(took[0] < 1_000_000, "{took:?}");
    let (code, last) = running.stop();
    assert_eq!((code, last.number("restarts")), (0, 10));
}

#[test]
fn r26_a_crash_loop_stops_with_its_reason_and_the_last_words() {
    let script = "echo starting; echo the key is missing >&2; exit 7";
    let mut running = Running::start(["--crash-loop", "2/60s", "--", "sh", "-c", script]);
    running.event("restart", &["reason=exit", "status=7", "restarts=1"]);
    running.event("backoff", &["delay_ms="]);
    let told = running.event("crash_loop", &["ends=3", "status=7"]);
    assert!(told.0.contains("the key is missing"), "{}", told.0);
    let (code, last) = running.ended();
    assert_eq!((code, last.value("why")), (7, "all_down"));
}

#[test]
fn r26_one_that_exits_at_once_with_0_under_always_is_a_crash_loop_too() {
    let args = ["--restart", "always", "--crash-loop", "2/60s", "--", "true"];
    let mut running = Running::start(args);
    running.event("crash_loop", &["ends=3", "status=0"]);
    assert_eq!(running.ended().0, 1);
}

#[test]
fn one_that_did_its_work_is_not_started_again() {
    let mut running = Running::start(["--", "true"]);
    let (code, last) = running.ended();
    assert_eq!((code, last.number("restarts")), (0, 0));
    let mut running = Running::start(["--restart", "never", "--", "sh", "-c", "exit 5"]);
    running.event("down", &["reason=\"restart=never\"", "status=5"]);
    assert_eq!(running.ended().0, 5);
    let mut running = Running::start(["--stop-on", "3,4", "--", "sh", "-c", "exit 4"]);
    running.event("down", &["reason=stop_on"]);
    assert_eq!(running.ended().0, 4);
}

#[test]
fn a_program_that_cannot_be_run_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    for (program, code) in [("/nowhere/at/all", 127), (plain.to_str().unwrap(), 126)] {
        for restart in ["on-failure", "always"] {
            let mut running = Running::start(["--restart", restart, "--", program]);
            running.event("start_failed", &[&format!("status={code}")]);
            let (status, last) = running.ended();
            assert_eq!((status, last.number("restarts")), (code, 0));
        }
        let said = run(["run", "--once", "--", program]);
        assert_eq!(said.code, code, "{}", said.stderr);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    }
}

#[test]
fn own_descriptors_are_at_their_baseline_after_50_kills() {
    let args = ["--backoff", "off", "--crash-loop", "off", "--listen"];
    let listen = format!("tcp:{}", free_port());
    let rest = [&*listen, "--", &*service(), "stamp"];
    let mut running = Running::start(args.iter().copied().chain(rest));
    let mut pid = running.event("start", &[]).number("pid");
    let before = running.at_rest();
    for _ in 0..50 {
        signal(pid, Signal::KILL);
        pid = running.event("start", &[]).number("pid");
    }
    assert_eq!(running.at_rest(), before);
    let (code, last) = running.stop();
    assert_eq!((code, last.number("restarts")), (0, 50));
    assert_eq!(last.value("fds_at_start"), last.value("fds_at_end"));
}

#[test]
fn json_lines_have_a_schema_and_a_time() {
    let said = run(["run", "--log-format", "json", "--", "true"]);
    assert_eq!(said.code, 0);
    let mut names = Vec::new();
    for line in said.stderr.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["schema"], "fdguard.event/1");
        assert!(event["time"].as_str().unwrap().starts_with("20"), "{event}");
        names.push(event["event"].as_str().unwrap().to_owned());
    }
    assert!(
        names.ends_with(&["start".into(), "exit".into(), "stopped".into()]),
        "{names:?}"
    );
}

#[test]
fn r22_exec_becomes_the_program_with_its_limit_raised() {
    let script = "ulimit -Sn 64; exec \"$0\" run --exec -- sh -c 'echo $$; ulimit -Sn; echo ${FDGUARD_RUN-none}; exit 6'";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_fdguard")]);
    command.env_remove("FDGUARD_RUN");
    let child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), (&*pid.to_string(), "none"));
    assert!(lines[1].parse::<u64>().unwrap() > 64, "{text}");
    assert_eq!(output.status.code(), Some(6));
    let said = run(["run", "--exec", "--", "/nowhere/at/all"]);
    assert_eq!(
        (said.code, said.stderr.lines().count()),
        (127, 1),
        "{}",
        said.stderr
    );
}

#[test]
fn r22_it_does_not_nest_by_accident() {
    let script = "\"$0\" run -- true; echo inner $?; \"$0\" run --nest -- true; echo nested $?; \"$0\" run --once -- true; echo once $?";
    let program = env!("CARGO_BIN_EXE_fdguard");
    let mut running = Running::start(["--", "sh", "-c", script, program]);
    assert_eq!(running.line("inner "), "2");
    assert_eq!(running.line("nested "), "0");
    assert_eq!(running.line("once "), "0");
    assert_eq!(running.ended().0, 0);
    let said = running.seen.join("\n");
    assert!(said.contains("already supervised by fdguard run"), "{said}");
}

#[test]
fn once_passes_the_status_on_and_leaves_nothing() {
    let said = run(["run", "--once", "--", "sh", "-c", "echo out; exit 3"]);
    assert_eq!((said.code, said.text(), &*said.stderr), (3, "out\n", ""));
    let said = run(["run", "--once", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(said.code, 137);
    let script = "setsid sleep 1000 & echo $!; exit 0";
    let mut command = fdguard();
    command.args(["run", "--once", "--", "sh", "-c", script]);
    let said = CommandOutput::of(command.output().unwrap());
    let left: u32 = said.text().trim().parse().unwrap();
    assert!(!super::running::is_alive(left));
    assert_eq!(said.code, 0);
    let named = format!("({left})");
    assert!(
        said.stderr.contains(&named) && said.stderr.contains("event=orphans"),
        "{}",
        said.stderr
    );
}
