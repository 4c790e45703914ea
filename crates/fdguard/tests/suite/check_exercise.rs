//! `fdguard check --exercise`: what each cycle leaves in a server.

use std::io::BufRead as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{CommandOutput, fdguard};

fn victim() -> PathBuf {
    testkit::c_variant("served", "O1", &["-O1", "-g", "-fno-inline"])
        .expect("a victim that compiles")
}

/// A free port.
fn port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

fn line() -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/c/served.c");
    let text = std::fs::read_to_string(path).unwrap();
    let found = text
        .lines()
        .position(|line| line.contains("/* LEAK load */"));
    found.unwrap() + 1
}

/// A check of this kind of server.
fn exercise(kind: &str, arguments: &[&str]) -> CommandOutput {
    let (port, victim) = (port(), victim());
    let ask = format!("{} ask {port}", victim.display());
    let ready = format!("tcp:{port}");
    let mut command = fdguard();
    command.args(["check", "--exercise", &ask, "--ready", &ready]);
    command
        .args(arguments)
        .arg("--")
        .arg(victim)
        .args([kind, &port]);
    CommandOutput::of(command.output().unwrap())
}

/// The last line, which is the document: the server's output comes before it.
fn document(said: &CommandOutput) -> Value {
    serde_json::from_str(said.text().lines().last().unwrap()).unwrap()
}

#[test]
fn r34_one_descriptor_per_request_is_told_with_its_line() {
    let said = exercise("leak", &["--json"]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(
        said.text().starts_with("listening on "),
        "its output is passed on"
    );
    let found = document(&said);
    let finding = &found["findings"][0];
    assert_eq!(finding["rule"], "leak-per-request");
    assert_eq!(finding["origin"]["culprit"]["line"], line());
    let sentence = format!(
        "one descriptor per request from served.c:{} load (regular /etc/passwd)",
        line()
    );
    let why = finding["why"].as_str().unwrap();
    assert!(why.starts_with(&sentence), "{why}");
    let exercise = &found["check"]["exercises"][0];
    assert_eq!(
        (&exercise["cycles"], &exercise["undecided"]),
        (&30.into(), &false.into())
    );
    assert_eq!(found["verdict"], "leaking");
    assert_eq!(found["coverage"]["backend"], "preload");
}

#[test]
fn r34_a_leak_now_and_then_is_told_as_such() {
    let said = exercise("third", &["--concurrency", "1"]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    let sentence = "1 descriptor every 3 requests from served.c:";
    assert!(said.stderr.contains(sentence), "{}", said.stderr);
}

#[test]
fn r15_a_server_that_is_clean_and_one_whose_cache_fills_pass() {
    let said = exercise("clean", &["--json"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(document(&said)["findings"], serde_json::json!([]));
    let said = exercise("cache", &["--json", "--warmup", "2"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let found = document(&said);
    assert_eq!(found["check"]["leftovers"][0]["judged"], "held", "{found}");
    assert_eq!(found["verdict"], "bounded");
}

#[test]
fn requests_at_the_same_time_are_counted_one_by_one() {
    let said = exercise("leak", &["--concurrency", "3", "--cycles", "12"]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(
        said.stderr.contains("one descriptor per request"),
        "{}",
        said.stderr
    );
}

#[test]
fn a_server_that_is_never_ready_is_not_called_clean() {
    let port = port();
    let mut command = fdguard();
    let ready = format!("tcp:{port}");
    command.args([
        "check",
        "--exercise",
        "true",
        "--ready",
        &ready,
        "--ready-timeout",
        "300ms",
    ]);
    command.args(["--", "sh", "-c", "echo waiting for nobody; exec sleep 1000"]);
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.code, 3, "{}", said.stderr);
    assert!(
        said.stderr.contains("was not ready within 0.3 s"),
        "{}",
        said.stderr
    );
    assert!(
        said.stderr.contains("  | waiting for nobody"),
        "{}",
        said.stderr
    );
}

#[test]
fn a_server_that_ends_too_soon_is_told_with_its_status() {
    let said = exercise("die", &[]);
    assert_eq!(said.code, 3, "{}", said.stderr);
    assert!(said.stderr.contains("exit status: 9"), "{}", said.stderr);
    let mut command = fdguard();
    command.args([
        "check",
        "--exercise",
        "true",
        "--ready",
        "line:up",
        "--",
        "sh",
        "-c",
        "exit 4",
    ]);
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.code, 3, "{}", said.stderr);
    assert!(
        said.stderr
            .contains("ended before it was ready: exit status: 4"),
        "{}",
        said.stderr
    );
}

#[test]
fn an_exercise_that_fails_is_no_leak_and_shows_what_it_said() {
    let mut command = fdguard();
    let fails = "echo the door is shut >&2; exit 22";
    command.args(["check", "--exercise", fails, "--ready", "line:^up$"]);
    command.args(["--", "sh", "-c", "echo up; exec sleep 1000"]);
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.code, 3, "{}", said.stderr);
    assert!(said.stderr.contains("exit status: 22"), "{}", said.stderr);
    assert!(
        said.stderr.contains("  | the door is shut"),
        "{}",
        said.stderr
    );
    assert!(!said.stderr.contains("leak-per-request"), "{}", said.stderr);
}

#[test]
fn a_server_that_runs_already_is_judged_without_lines_and_left_alone() {
    let (port, victim) = (port(), victim());
    let mut server = Command::new(&victim)
        .args(["leak", &port])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut out = std::io::BufReader::new(server.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    let ask = format!("{} ask {port}", victim.display());
    let mut command = fdguard();
    command.args([
        "check",
        "--json",
        "--exercise",
        &ask,
        "--pid",
        &server.id().to_string(),
    ]);
    let said = CommandOutput::of(command.output().unwrap());
    let is_there = server.try_wait().unwrap().is_none();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(is_there, "it was not ours to end");
    let found = said.json();
    assert_eq!(found["findings"][0]["rule"], "leak-per-request");
    assert_eq!(found["findings"][0]["class"], "regular");
    assert_eq!(found["coverage"]["backend"], "inject");
    let culprit = &found["findings"][0]["origin"]["culprit"];
    let line = super::tracing::line_of("served.c", "/* LEAK load */");
    assert_eq!(culprit["line"], line, "{found}");
}

#[test]
fn a_low_limit_reaches_the_server() {
    let mut command = fdguard();
    command.args(["check", "--limit", "64", "--", "sh", "-c", "ulimit -Sn"]);
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!((said.code, said.text()), (0, "64\n"), "{}", said.stderr);
}

#[test]
fn a_signal_ends_the_check_and_its_server() {
    let mut command = fdguard();
    command.args(["check", "--exercise", "sleep 1000", "--ready", "line:up"]);
    command.args(["--", "sh", "-c", "echo up $$; exec sleep 1000"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    let server = first.trim().rsplit(' ').next().unwrap().to_owned();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(!Path::new("/proc").join(server).exists());
}
