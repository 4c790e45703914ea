//! `fdguard run`: notifications both ways, and checks.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use super::fdguard;
use super::running::{Running, service, signal};

/// A parent that listens.
struct Parent {
    socket: UnixDatagram,
    dir: tempfile::TempDir,
}

impl Parent {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        Self { socket, dir }
    }

    fn run(&self, variables: &[(&str, &str)], args: &[&str]) -> Running {
        let mut command = fdguard();
        command.arg("run").args(args);
        command.env("NOTIFY_SOCKET", self.dir.path().join("notify"));
        command.envs(variables.iter().copied());
        Running::of(command)
    }

    /// The next message with this line.
    fn hear(&self, line: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let length = self.socket.recv(&mut buffer).unwrap();
            let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
            if text.lines().any(|one| one == line) {
                return text;
            }
        }
    }
}

#[test]
fn r27_the_parent_hears_ready_status_and_stopping() {
    let parent = Parent::new();
    let service = service();
    let args = [
        "--ready",
        "notify",
        "--",
        &service,
        "notify",
        "READY=1\nSTATUS=warm",
    ];
    let mut running = parent.run(&[], &args);
    let told = running.event("supervising", &[]);
    assert_eq!(told.value("parent"), "systemd");
    running.event("ready", &["after_ms="]);
    let ready = parent.hear("READY=1");
    assert!(ready.contains("STATUS=service-O1: ready"), "{ready}");
    running.signal(Signal::TERM);
    parent.hear("STOPPING=1");
    assert_eq!(running.ended().0, 0);
}

#[test]
fn r27_the_parent_is_not_told_ready_before_the_service_is() {
    let parent = Parent::new();
    let service = service();
    let mut running = parent.run(
        &[],
        &["--ready", "notify", "--", &service, "notify", "STATUS=cold"],
    );
    running.line("told");
    let text = parent.hear("EXTEND_TIMEOUT_USEC=20000000");
    assert!(!text.contains("READY"), "{text}");
    running.signal(Signal::TERM);
    let text = parent.hear("STOPPING=1");
    assert!(!text.contains("READY"), "{text}");
    assert_eq!(running.ended().0, 0);
}

#[test]
fn r27_signs_of_life_go_on_while_all_is_well() {
    let parent = Parent::new();
    let service = service();
    let mut running = parent.run(&[("WATCHDOG_USEC", "200000")], &["--", &service, "stamp"]);
    parent.hear("WATCHDOG=1");
    parent.hear("WATCHDOG=1");
    assert_eq!(running.stop().0, 0);
}

#[test]
fn a_parent_that_does_not_listen_is_told_of_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = fdguard();
    command.args(["run", "--", &service(), "stamp"]);
    command.env("NOTIFY_SOCKET", dir.path().join("nobody"));
    let mut running = Running::of(command);
    running.line("stamp ");
    running.event("notify_failed", &["cannot send to NOTIFY_SOCKET"]);
    assert_eq!(running.stop().0, 0);
    let failed = |line: &&String| line.contains("event=notify_failed");
    assert_eq!(
        running.seen.iter().filter(failed).count(),
        1,
        "{:#?}",
        running.seen
    );
}

#[test]
fn a_service_that_falls_silent_is_restarted() {
    let args = ["--ready", "notify", "--watchdog", "300ms", "--"];
    let mut running = Running::start(args.iter().copied().chain([&*service(), "alive", "2"]));
    running.event("ready", &[]);
    running.event("watchdog", &["no WATCHDOG=1"]);
    running.event("restart", &["reason=watchdog", "signal=SIGABRT"]);
    running.event("ready", &[]);
    assert_eq!(running.stop().0, 0);
}

#[test]
fn stored_descriptors_are_there_again_after_a_restart() {
    let args = ["--crash-loop", "off", "--", &*service(), "store"];
    let mut running = Running::start(args);
    let pid = running.event("start", &[]).number("pid");
    assert_eq!(running.line("run "), "1 of -");
    running.event("fd_store", &["change=stored", "name=counter"]);
    signal(pid, Signal::KILL);
    assert_eq!(running.line("run "), "2 of counter");
    assert_eq!(running.stop().0, 0);
}

#[test]
fn a_newline_at_its_number_says_ready() {
    let listen = format!("tcp:{}", super::running::free_port());
    let args = ["--listen", &*listen, "--ready", "fd:6", "--"];
    let script = "echo early >&6; exec sleep 1000";
    let mut running = Running::start(args.into_iter().chain(["sh", "-c", script]));
    running.event("ready", &["after_ms="]);
    assert_eq!(running.stop().0, 0);
    let said = super::run(["run", "--listen", &listen, "--ready", "fd:3", "--", "true"]);
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert!(
        said.stderr
            .contains("descriptor 3 is used by a socket: use fd:4"),
        "{}",
        said.stderr
    );
}

#[test]
fn one_that_is_not_ready_in_time_is_restarted_and_given_up() {
    let args = [
        "--ready",
        "notify",
        "--ready-timeout",
        "200ms",
        "--crash-loop",
        "1/60s",
        "--",
    ];
    let mut running = Running::start(args.iter().copied().chain([&*service(), "stamp"]));
    running.event("not_ready", &[]);
    running.event("restart", &["reason=not_ready"]);
    running.event("crash_loop", &["ends=2"]);
    assert_ne!(running.ended().0, 0);
}

#[test]
fn r30_a_check_that_fails_restarts_the_service() {
    let dir = tempfile::tempdir().unwrap();
    let well = dir.path().join("well");
    std::fs::write(&well, "").unwrap();
    let check = format!("exec:test -e {}", well.display());
    let mut config = format!("[service.web]\ncommand = [{:?}, \"stamp\"]\n", service());
    config.push_str(&format!(
        "health = {{ exec = {:?}, period_seconds = 0.1, failure_threshold = 2 }}\n",
        &check[5..]
    ));
    let file = dir.path().join("services.toml");
    std::fs::write(&file, config).unwrap();
    let mut running = Running::start(["--config", file.to_str().unwrap()]);
    running.line("stamp ");
    std::fs::remove_file(&well).unwrap();
    running.event("unhealthy", &["failures=2"]);
    std::fs::write(&well, "").unwrap();
    running.event("restart", &["reason=health"]);
    running.line("stamp ");
    assert_eq!(running.stop().0, 0);
}
