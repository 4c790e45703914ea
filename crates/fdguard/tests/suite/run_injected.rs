//! `fdguard run --trace` and `--protect`: the library in every start of a service.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::running::{Running, await_end, free_port, get, is_alive, service, signal};
use super::{CommandOutput, fdguard};

/// The variable that gives the library its output directory.
const VARIABLE: &[u8] = b"FDGUARD_TRACE_DIR=";

const SERVER: &str = "\
import os, time
held = []
def load():
    held.append(open('/dev/null'))
print('leaking', os.getpid(), flush=True)
while True:
    load()
    time.sleep(0.01)
";

fn victim() -> PathBuf {
    let flags = ["-O1", "-g", "-pthread", "-fno-optimize-sibling-calls"];
    testkit::c_variant("protected", "O1", &flags).expect("a victim that compiles")
}

/// The directory in which a process records what it opens.
fn dir_of(pid: u32) -> PathBuf {
    loop {
        // During an exec a process has no environment, and before it that of its parent.
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let mut words = environ.split(|byte| *byte == 0);
        if let Some(dir) = words.find_map(|word| word.strip_prefix(VARIABLE)) {
            return OsString::from_vec(dir.to_vec()).into();
        }
        std::thread::yield_now();
    }
}

fn files(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

/// A service of Python that leaks, below a low budget.
fn leaking(dir: &Path, flags: &[&str]) -> Running {
    let script = dir.join("server.py");
    fs::write(&script, SERVER).unwrap();
    let mut command = fdguard();
    command.env("XDG_STATE_HOME", dir).arg("run").args(flags);
    command.args(["--budget", "fds=60:90", "--warmup", "0s"]);
    command.args(["--", "python3"]).arg(script);
    Running::of(command)
}

#[test]
fn r29_a_breach_names_the_line_that_opened_what_leaks() {
    if !testkit::have("python3") {
        return testkit::skip("needs python3");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut running = leaking(dir.path(), &["--trace", "--evidence", "off"]);
    let first = running.event("start", &[]).number("pid");
    let line = "leak_line=\"server.py:4 load\"";
    let breach = running.event("breach", &["reason=fd_budget", line]);
    assert_eq!(breach.number("pid"), first);
    // The line comes from the old process, and the proof from the new one.
    let proven = running.event(
        "proven",
        &[line, "look for a missing close at server.py:4 load"],
    );
    assert_eq!(proven.number("before"), first);
    running.event("breach", &["again=true", line]);
    let (code, last) = running.stop();
    assert_eq!((code, last.number("restarts")), (0, 1));
    assert_eq!(last.value("fds_at_start"), last.value("fds_at_end"));
}

#[test]
fn r29_a_breach_has_evidence_where_nobody_said_a_word_about_it() {
    if !testkit::have("python3") || !testkit::have("tar") || !testkit::have("zstd") {
        return testkit::skip("needs python3, tar and zstd");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut running = leaking(dir.path(), &[]);
    let told = running.event("evidence", &["place="]);
    let place = PathBuf::from(told.value("place"));
    assert!(
        place.starts_with(dir.path().join("fdguard/evidence")),
        "{}",
        told.0
    );
    running.event("proven", &["(evidence: "]);
    let mut list = std::process::Command::new("tar");
    let said = CommandOutput::of(list.args(["--zstd", "-tf"]).arg(&place).output().unwrap());
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.text().lines().count() > 3, "{}", said.text());
    assert_eq!(running.stop().0, 0);
}

#[test]
fn r29_evidence_that_cannot_be_written_does_not_stop_the_restart() {
    if !testkit::have("python3") {
        return testkit::skip("needs python3");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let blocked = dir.path().join("file/evidence").display().to_string();
    let mut running = leaking(dir.path(), &["--evidence", &blocked]);
    running.event("evidence", &["failed=", "file/evidence"]);
    running.event("proven", &[]);
    assert_eq!(running.stop().0, 0);
}

#[test]
fn r41_what_is_prevented_is_told_and_counted_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let (address, victim) = (format!("127.0.0.1:{}", free_port()), victim());
    let mut command = fdguard();
    command.args(["run", "--protect", "--metrics", &address]);
    command.args(["--restart", "always", "--crash-loop", "off", "--"]);
    command.arg(victim).arg("stale-write").arg(dir.path());
    let mut running = Running::of(command);
    let mut pids = BTreeSet::new();
    for _ in 0..3 {
        let start = running.event("start", &[]).number("pid");
        let words = ["rule=use-after-close", " fd=", "count=1", "text="];
        let told = running.event("prevented", &words);
        assert_eq!(told.number("pid"), start);
        assert!(told.0.contains("used by protected.c:"), "{}", told.0);
        assert!(told.0.contains(" stale_write"), "{}", told.0);
        pids.insert(start);
    }
    assert_eq!(pids.len(), 3);
    let text = get(&address, "/metrics");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("fdguard_prevented_total{rule=\"use-after-close\"} "));
    let count: u32 = line.unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    assert!(count >= 3, "{count}");
    let (code, last) = running.stop();
    assert_eq!(code, 0);
    assert_eq!(last.value("fds_at_start"), last.value("fds_at_end"));
}

#[test]
fn r33_thirty_restarts_leave_no_dir_no_file_and_no_descriptor() {
    let service = service();
    let flags = ["--protect", "--crash-loop", "off", "--backoff", "1ms..1ms"];
    let mut running = Running::start(flags.into_iter().chain(["--", &*service, "stamp"]));
    running.line("stamp ");
    // Its other threads open something for a moment now and then, so one count alone may be high.
    let before = (0..5).map(|_| running.at_rest()).min().unwrap();
    let mut dirs = BTreeSet::new();
    let mut pid = running.main();
    for _ in 0..30 {
        let dir = dir_of(pid);
        // The library, the file that Node loads, the mark, and the table of the one process.
        assert_eq!(files(&dir), 4, "{}", dir.display());
        assert!(dirs.insert(dir));
        signal(pid, Signal::KILL);
        running.line("stamp ");
        pid = running.main();
    }
    // The previous run is over before the next begins.
    assert!(dirs.iter().all(|dir| !dir.exists()));
    dirs.insert(dir_of(pid));
    let after = (0..50)
        .map(|_| running.at_rest())
        .find(|count| *count <= before);
    assert!(after.is_some(), "never back at {before} descriptors");
    let (code, last) = running.stop();
    assert_eq!((code, last.number("restarts")), (0, 30));
    assert_eq!(last.value("fds_at_start"), last.value("fds_at_end"));
    assert!(dirs.iter().all(|dir| !dir.exists()));
}

#[test]
fn r33_the_tables_of_children_that_ended_do_not_stay() {
    let script =
        "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done; echo done; exec sleep 600";
    let mut running = Running::start(["--trace", "--", "sh", "-c", script]);
    let pid = running.event("start", &[]).number("pid");
    running.line("done");
    let dir = dir_of(pid);
    // Each answer is a poll of the loop, and it looks within some seconds. nextest ends a stuck
    // test.
    while files(&dir) > 10 {
        running.signal(Signal::QUIT);
        running.event("state", &[]);
    }
    assert_eq!(running.stop().0, 0);
    assert!(!dir.exists());
}

#[test]
fn r25_no_thread_of_the_supervisor_takes_its_signals() {
    let service = service();
    let mut running = Running::start(["--protect", "--", &*service, "stamp"]);
    running.line("stamp ");
    let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap();
    let threads: Vec<i32> = tasks
        .map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(threads.len(), 3, "the loop, the listener, the looker");
    // Whichever thread the kernel chooses, the loop answers.
    for thread in threads {
        testkit::sys::signal_thread(running.pid(), thread, Signal::QUIT.as_raw()).unwrap();
        running.event("state", &[]);
    }
    assert_eq!(running.stop().0, 0);
}

#[test]
fn r33_a_supervisor_that_is_killed_leaves_a_dir_for_the_next_to_remove() {
    let service = service();
    let mut running = Running::start(["--trace", "--", &*service, "stamp"]);
    running.line("stamp ");
    let pid = running.main();
    let dir = dir_of(pid);
    running.signal(Signal::KILL);
    running.wait();
    await_end(pid);
    let mut command = fdguard();
    command.args(["run", "--once", "--protect", "--", "true"]);
    assert_eq!(CommandOutput::of(command.output().unwrap()).code, 0);
    assert!(!dir.exists());
}

#[test]
fn r29_a_program_that_cannot_be_seen_into_runs_on_and_is_told_of_once() {
    let Some(program) = testkit::c_variant("service", "static", &["-O1", "-static"]) else {
        return testkit::skip("needs a static C library");
    };
    let program = program.display().to_string();
    let mut running = Running::start(["--trace", "--", &*program, "stamp"]);
    running.event("untraced", &["statically linked"]);
    running.line("stamp ");
    signal(running.main(), Signal::KILL);
    running.line("stamp ");
    assert_eq!(running.stop().0, 0);
    let told = running.seen.iter();
    assert_eq!(told.filter(|line| line.contains("untraced")).count(), 1);
    let mut command = fdguard();
    command
        .env_remove("FDGUARD_RUN")
        .args(["run", "--protect", "--"]);
    let said = CommandOutput::of(command.args([&*program, "stamp"]).output().unwrap());
    assert_eq!((said.code, said.text()), (3, ""), "{}", said.stderr);
    assert!(said.stderr.contains("statically linked"), "{}", said.stderr);
}

#[test]
fn r41_a_protected_program_leaves_nobody_behind() {
    let mut command = fdguard();
    command.args(["run", "--once", "--protect", "--", "sh", "-c"]);
    // A separate session that does not hold the test's pipes.
    command.arg("setsid sleep 600 >/dev/null 2>&1 & echo $!; exit 5");
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.code, 5, "{}", said.stderr);
    let left: u32 = said.text().trim().parse().unwrap();
    assert!(!is_alive(left));
    assert!(said.stderr.contains("event=orphans"), "{}", said.stderr);
}
