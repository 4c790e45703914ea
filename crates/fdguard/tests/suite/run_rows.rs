//! `fdguard run`: one test for each promise that other supervisors do not make and that no other
//! file of tests shows.

use rustix::process::Signal;

use super::running::{Running, await_end, free_port, is_alive, signal};

/// A Python service with one budget: the breach is reported and the service restarted.
fn breached(budget: &str, script: &str) -> Running {
    let program = format!("{script}\nimport time\nwhile True: time.sleep(60)");
    let flags = ["--budget", budget, "--warmup", "0s", "--evidence", "off"];
    let others = match budget.starts_with("highest") {
        true => ["--budget", "fds=off"],
        false => ["--budget", "highest=off"],
    };
    let flags = flags.into_iter().chain(others);
    let command = ["--raise-limit", "off", "--", "python3", "-c", &program];
    Running::start(flags.into_iter().chain(command))
}

#[test]
fn the_highest_number_has_a_budget_of_its_own() {
    let mut running = breached("highest=900:940", "import os\nos.dup2(0, 950)");
    let breach = running.event("breach", &["budget=highest"]);
    assert_eq!(breach.number("count"), 950, "{}", breach.0);
    running.event("restart", &["budget=highest"]);
    assert_eq!(running.stop().0, 0);
}

#[test]
fn a_class_has_a_budget_of_its_own() {
    let script = "import os\nkept = [os.pipe() for _ in range(30)]";
    let mut running = breached("class:pipe=20:50", script);
    let breach = running.event("breach", &["class=pipe"]);
    assert!(breach.number("count") >= 60, "{}", breach.0);
    running.event("restart", &[]);
    assert_eq!(running.stop().0, 0);
}

#[test]
fn children_that_nobody_waited_for_have_a_budget() {
    let script = "import os\nfor _ in range(12):\n  if os.fork() == 0: os._exit(0)";
    let mut running = breached("zombies=3:8", script);
    let breach = running.event("breach", &["budget=zombies"]);
    assert_eq!(breach.number("count"), 12, "{}", breach.0);
    running.event("restart", &["budget=zombies"]);
    assert_eq!(running.stop().0, 0);
}

#[test]
fn memory_has_a_budget_and_the_restart_is_gentle() {
    let script = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: (print('gently', flush=True), sys.exit(0)))\nkept = bytearray(96 << 20)";
    let mut running = breached("memory=32MiB:64MiB", script);
    running.event("breach", &["budget=memory"]);
    assert_eq!(running.line("gently"), "");
    running.event("restart", &["budget=memory"]);
    assert_eq!(running.stop().0, 0);
}

#[test]
fn the_time_to_the_wall_has_a_budget() {
    let script =
        "import os, time\nwhile True:\n  os.open('/etc/passwd', os.O_RDONLY); time.sleep(0.02)";
    let mut running = breached("wall=10h:9h", script);
    // No growth counts as a leak before forty looks.
    running.event("breach", &["budget=wall"]);
    running.event("restart", &["budget=wall"]);
    assert_eq!(running.stop().0, 0);
}

/// Supervisor and keeper are killed together: neither is left to end the service, and the next run
/// finds it on its port.
#[test]
fn r25_what_an_earlier_run_left_is_named_and_ended_where_asked() {
    let port = free_port();
    let listen = format!("tcp:127.0.0.1:{port}");
    let start = |policy: &str| {
        let flags = ["--name", "web", "--listen", &*listen, "--on-conflict"];
        Running::start(flags.into_iter().chain([policy, "--", "sleep", "600"]))
    };
    let mut first = start("refuse");
    let service = first.event("start", &[]).number("pid");
    let keeper = parent_of(service);
    signal(keeper, Signal::STOP);
    signal(first.pid(), Signal::KILL);
    signal(keeper, Signal::KILL);
    await_end(keeper);
    assert!(is_alive(service), "the test needs an orphan");
    let mut second = start("refuse");
    let told = second.event("port_conflict", &["an earlier run"]);
    assert_eq!(told.number("pid"), service);
    assert_eq!(second.wait().code(), Some(2));
    assert!(is_alive(service), "refused is refused");
    let mut third = start("end-if-ours");
    third.event("start", &[]);
    await_end(service);
    assert_eq!(third.stop().0, 0);
}

fn parent_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit(") ").next().unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}
