//! How a trace ends: Ctrl-C, once and twice, and programs that do not end.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{have, skip};

use super::terminal::Live;
use super::tracing::Tracing;

/// A script that prints `ready`; the trap defines what it does on a signal.
fn script(trap: &str) -> String {
    format!("exec 7</dev/null; {trap}; echo ready; while :; do sleep 0.02; done")
}

fn start(arguments: &[&str], trap: &str) -> Tracing {
    let mut tracing = Tracing::to_stderr(arguments, &["bash", "-c", &script(trap)]);
    assert_eq!(tracing.line(), "ready");
    tracing
}

/// The program: the tracer's only child.
fn program(tracing: &Tracing) -> rustix::process::Pid {
    let pid = tracing.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let child = children.split_whitespace().next().unwrap().parse().unwrap();
    rustix::process::Pid::from_raw(child).unwrap()
}

/// The directory of the program's library.
fn dir_of(pid: rustix::process::Pid) -> String {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let words = environ.split(|byte| *byte == 0);
    let mut words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    let dir = words.find_map(|word| Some(word.strip_prefix("FDGUARD_TRACE_DIR=")?.to_owned()));
    dir.unwrap()
}

/// As a terminal does: both get it.
fn press(tracing: &Tracing) {
    rustix::process::kill_process(program(tracing), Signal::INT).unwrap();
    tracing.signal(Signal::INT);
}

/// Sleeps, if elapsed time is what the test is about.
fn pass(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}

#[test]
fn r18_ctrl_c_ends_the_program_and_the_report_appears() {
    let tracing = start(&[], "trap 'exit 5' INT");
    press(&tracing);
    let (said, _) = tracing.end();
    assert_eq!(said.code, 5, "{}", said.stderr);
    assert!(
        said.stderr.contains("still open in bash"),
        "{}",
        said.stderr
    );
}

#[test]
fn r18_a_program_that_goes_on_after_ctrl_c_is_watched_on_until_its_end() {
    let mut tracing = start(
        &[],
        "n=0; trap 'n=$((n+1)); echo told $n' INT; trap 'exit 6' USR1",
    );
    press(&tracing);
    assert_eq!(tracing.line(), "told 1");
    let pid = program(&tracing);
    // Longer than a program may take to end on Ctrl-C: then the watch resumes.
    pass(Duration::from_millis(2500));
    rustix::process::kill_process(pid, Signal::USR1).unwrap();
    let (said, _) = tracing.end();
    assert_eq!(said.code, 6, "{}", said.stderr);
    assert!(
        said.stderr.contains("still open in bash"),
        "{}",
        said.stderr
    );
}

#[test]
fn r18_the_second_ctrl_c_leaves_with_the_report() {
    let mut tracing = start(&[], "n=0; trap 'n=$((n+1)); echo told $n' INT");
    let pid = program(&tracing);
    press(&tracing);
    assert_eq!(tracing.line(), "told 1");
    // Two close together count as one.
    pass(Duration::from_millis(600));
    press(&tracing);
    assert_eq!(tracing.line(), "told 2");
    let status = tracing.tracer.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    rustix::process::test_kill_process(pid).expect("the program still runs");
    let dir = dir_of(pid);
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    let dir = std::path::Path::new(&dir);
    assert!(dir.is_dir(), "the library of who runs on is left in place");
    // A child of it may still create a table.
    while dir.exists() {
        drop(std::fs::remove_dir_all(dir));
    }
    let (said, _) = tracing.end();
    assert!(
        said.stderr
            .contains("is still running and was left alone; this is the report so far")
    );
    assert!(
        said.stderr.contains("still open in bash"),
        "{}",
        said.stderr
    );
}

#[test]
fn a_program_that_does_not_end_is_told_of_and_waited_for() {
    let mut tracing = start(
        &["--for", "200ms"],
        "trap 'echo told' TERM; trap 'exit 4' INT",
    );
    assert_eq!(tracing.line(), "told");
    let mut said = String::new();
    let mut stderr = std::io::BufReader::new(tracing.tracer.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut stderr, &mut said).unwrap();
    assert!(
        said.contains("is still running 10 s after SIGTERM; press Ctrl-C twice"),
        "{said}"
    );
    press(&tracing);
    std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
    assert!(said.contains("still open in bash"), "{said}");
    let status = tracing.tracer.wait().unwrap();
    assert_eq!(status.code(), Some(0), "we ended it: {said}");
}

#[test]
fn r18_ctrl_c_on_a_terminal_reaches_the_program_and_leaves_the_report_there() {
    if !have("setsid") {
        return skip("needs setsid");
    }
    let mut command = Command::new("setsid");
    command.args(["-c", "-w", env!("CARGO_BIN_EXE_fdguard"), "trace", "--"]);
    command.args(["bash", "-c", &script("trap 'echo told; exit 5' INT")]);
    let mut live = Live::run(command, 80, 24);
    live.wait_for("ready");
    live.press(b"\x03");
    live.wait_for("told");
    let (status, shown) = live.end();
    assert_eq!(status.code(), Some(5), "{shown}");
    // With its colours.
    assert!(shown.contains("still open"), "{shown}");
    assert!(shown.contains(" in bash (pid "), "{shown}");
}
