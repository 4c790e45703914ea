//! The progress line of long commands: only on a terminal.

use std::process::Command;

use testkit::Victim;

use super::terminal::Live;
use super::{CommandOutput, fdguard};

const ERASE: &str = "\r\u{1b}[K";

/// What is left on the screen: each line after everything that erased a part of it.
fn screen(shown: &str) -> String {
    let lines = shown.split('\n').map(|line| {
        let line = line.trim_end_matches('\r');
        line.rsplit(ERASE).next().unwrap_or_default()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_doctor_shows_how_far_it_is_and_erases_it() {
    let mut victim = Victim::start("leaker");
    victim.tell("4 file");
    let pid = victim.pid().to_string();
    let mut live = Live::of(&["doctor", &pid, "--for", "3s"], 100, 40);
    live.wait_for(&format!("watching leaker (pid {pid}): "));
    live.wait_for(" of 3 s, 7 descriptors");
    let (status, shown) = live.end();
    assert_eq!(status.code(), Some(0), "{shown}");
    assert!(shown.contains("stable so far"), "{shown}");
    let left = screen(&shown);
    let first = left.lines().next().unwrap();
    assert!(first.contains("7 descriptors, no change in 3 s"), "{left}");
    assert!(!left.contains("watching leaker"), "{left}");
    victim.finish();
}

#[test]
fn a_watch_into_a_file_shows_how_far_it_is_on_the_terminal() {
    let victim = Victim::start("leaker");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("watch.json");
    let mut command = Command::new("sh");
    let script = "exec \"$0\" watch \"$1\" --for 3s --json >\"$2\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_fdguard")]);
    command.arg(victim.pid().to_string()).arg(&file);
    let mut live = Live::run(command, 60, 10);
    live.wait_for(" of 3 s, 3 descriptors");
    let (status, shown) = live.end();
    assert_eq!(status.code(), Some(0), "{shown}");
    assert_eq!(screen(&shown), "", "{shown:?}");
    let document = std::fs::read_to_string(&file).unwrap();
    assert!(
        document.starts_with("{\"schema\":\"fdguard.diagnosis/1\""),
        "{document}"
    );
    victim.finish();
}

/// A server that prints a line for each connection, an unfinished one first, and its exercise.
fn chatty(port: u16) -> Vec<String> {
    let server = format!(
        "import socket, sys\ns = socket.create_server(('127.0.0.1', {port}))\n\
         print('begun', flush=True)\nwhile True:\n    s.accept()[0].close()\n    print('one more', flush=True)\n"
    );
    let ask = format!(
        "sleep 0.15; python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port})).recv(1)'"
    );
    let ready = format!("tcp:{port}");
    let words = [
        "check",
        "--exercise",
        &ask,
        "--ready",
        &ready,
        "--cycles",
        "10",
    ];
    let more = ["--warmup", "1", "--", "python3", "-c", &server];
    words.into_iter().chain(more).map(str::to_owned).collect()
}

fn port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn an_exercise_shows_its_cycle_and_the_servers_lines_stay_whole() {
    let words = chatty(port());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut live = Live::of(&words, 100, 40);
    live.wait_for("exercise: cycle ");
    let (status, shown) = live.end();
    assert_eq!(status.code(), Some(0), "{shown}");
    assert!(shown.contains(" of 10, "), "{shown}");
    let left = screen(&shown);
    assert!(!left.contains("exercise: cycle"), "{left}");
    assert_eq!(
        left.lines().filter(|line| *line == "begun").count(),
        1,
        "{left}"
    );
    // One for the readiness check, one each for the warm-up and the cycles.
    let whole = left.lines().filter(|line| *line == "one more").count();
    assert!(whole >= 11, "{left}");
    assert!(left.lines().any(|line| line.contains("passed")), "{left}");
}

#[test]
fn a_soak_says_how_far_it_is_in_lines_between_those_of_the_program() {
    let script = "while :; do sleep 0.2; echo alive; done";
    let mut live = Live::of(
        &["check", "--soak", "4s", "--", "sh", "-c", script],
        100,
        40,
    );
    live.wait_for("fdguard: watching sh (pid ");
    let (status, shown) = live.end();
    assert_eq!(status.code(), Some(0), "{shown}");
    let lines = shown.lines().map(|line| line.trim_end_matches('\r'));
    let (notes, others): (Vec<&str>, Vec<&str>) =
        lines.partition(|line| line.starts_with("fdguard: "));
    assert!(
        notes.iter().any(|line| line.contains(" of 4 s, ")),
        "{shown}"
    );
    assert!(
        others.iter().filter(|line| **line == "alive").count() > 5,
        "{shown}"
    );
    assert!(!shown.contains(ERASE), "{shown:?}");
}

#[test]
fn nothing_of_it_goes_into_a_pipe() {
    let mut command = fdguard();
    command.args(chatty(port())).env("TERM", "xterm-256color");
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.code, 0, "{}", said.stderr);
    let all = format!("{}{}", said.text(), said.stderr);
    assert!(!all.contains('\r') && !all.contains("cycle "), "{all}");
    let victim = Victim::start("leaker");
    let mut command = fdguard();
    command.args(["doctor", &victim.pid().to_string(), "--for", "2s"]);
    let said = CommandOutput::of(command.env("TERM", "xterm-256color").output().unwrap());
    assert_eq!((said.code, &*said.stderr), (0, ""));
    victim.finish();
}
