//! `fdguard check`: leftover processes have the line that started them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::skip;

use super::trace_children::{line, script};
use super::{CommandOutput, fdguard};

fn starter() -> PathBuf {
    let flags = ["-O1", "-g", "-fno-inline"];
    testkit::c_variant("starter", "O1", &flags).expect("a victim that compiles")
}

fn mark(name: &str) -> usize {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/c/starter.c");
    line(&source, name)
}

fn check(arguments: &[&str], mode: &str) -> CommandOutput {
    let mut command = fdguard();
    command.args(["check", "--grace", "100ms"]).args(arguments);
    CommandOutput::of(command.arg("--").arg(starter()).arg(mode).output().unwrap())
}

#[track_caller]
fn orphan_is_from(mode: &str, name: &str) {
    let said = check(&["--json"], mode);
    let found = said.json();
    assert_eq!(said.code, 1, "{found}");
    let finding = &found["findings"][0];
    assert_eq!(finding["rule"], "leftover-process", "{found}");
    let culprit = &finding["origin"]["culprit"];
    let file = culprit["file"].as_str().unwrap_or_default();
    assert!(file.ends_with("starter.c"), "{finding:#}");
    assert_eq!(culprit["line"], mark(name), "{finding:#}");
    let left = &found["check"]["processes"][0];
    assert_eq!(left["origin"]["culprit"], *culprit);
}

#[test]
fn r38_the_orphan_of_a_bootstrap_has_the_line_that_started_it() {
    super::leakbench::judged("check", "py-bootstrap-orphan");
}

#[test]
fn r38_an_orphan_of_two_forks_has_the_line_of_the_second() {
    orphan_is_from("orphan", "orphan");
}

#[test]
fn r38_a_line_that_waits_for_its_children_is_not_blamed_for_the_last_that_ended() {
    let said = check(&["--json"], "last");
    let found = said.json();
    assert_eq!(said.code, 0, "{found:#}");
    assert_eq!(
        found["check"]["processes"],
        serde_json::json!([]),
        "{found:#}"
    );
}

#[test]
fn r38_a_child_that_still_runs_is_left_whatever_the_habit_of_its_line() {
    orphan_is_from("last-runs", "habit");
}

#[test]
fn r38_an_orphan_of_a_shell_has_the_line_that_started_the_shell() {
    orphan_is_from("daemon-shell", "daemon-shell");
}

#[test]
fn r38_an_orphan_of_a_shell_that_was_waited_for_inside_of_a_call_has_the_line_of_the_call() {
    orphan_is_from("shell", "shell");
}

#[test]
fn r38_the_text_names_the_line_and_its_allowance_clears_the_process() {
    let place = format!("starter.c:{}", mark("orphan"));
    let said = check(&[], "orphan");
    let is_named = |line: &str| line.contains("leftover-process") && line.contains(&place);
    assert!(said.stderr.lines().any(is_named), "{}", said.stderr);
    let allowed = check(&["--allow", &place], "orphan");
    assert_eq!(allowed.code, 0, "{}", allowed.stderr);
    let text = format!("allowed by --allow {place}");
    assert!(allowed.stderr.contains(&text), "{}", allowed.stderr);
    let other = check(&["--allow", "starter.c:1"], "orphan");
    assert_eq!(other.code, 1, "{}", other.stderr);
}

/// The exit code and the document for a server of this kind; `None` without Python.
fn exercised(kind: &str) -> Option<(i32, Value)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let server = script("spawning_server.py");
    let ask = format!(
        "python3 -c 'import socket; print(socket.create_connection((\"127.0.0.1\", {port})).recv(9))'"
    );
    let mut command = fdguard();
    let ready = format!("tcp:{port}");
    command.args(["check", "--exercise", &ask, "--ready", &ready]);
    command.args(["--cycles", "12", "--json", "--", "python3"]);
    let said = CommandOutput::of(command.arg(server).args([kind, &port]).output().unwrap());
    if said.code == 127 {
        skip("no python3");
        return None;
    }
    let text = said.text();
    let last = text
        .lines()
        .last()
        .unwrap_or_else(|| panic!("{}", said.stderr));
    Some((said.code, serde_json::from_str(last).unwrap()))
}

/// Regression: their standard input and output gave two more critical findings from an unknown
/// line, and the processes were not named.
#[test]
fn r38_a_forgotten_child_for_each_request_is_one_finding_with_its_line() {
    let Some((code, found)) = exercised("forget") else {
        return;
    };
    assert_eq!(code, 1, "{found}");
    let findings = found["findings"].as_array().unwrap();
    let counting: Vec<&Value> = findings
        .iter()
        .filter(|one| one["severity"] != "info" && one["rule"] != "leftover-process")
        .collect();
    let [finding] = counting.as_slice() else {
        panic!("{counting:#?}");
    };
    let wanted = line(&script("spawning_server.py"), "request");
    assert_eq!(finding["origin"]["culprit"]["line"], wanted, "{finding:#}");
    let sentence = format!(
        "one child process (`sleep`) per request, started at spawning_server.py:{wanted} handle, none waited for"
    );
    let why = finding["why"].as_str().unwrap();
    assert!(why.starts_with(&sentence), "{why}");
}

#[test]
fn r15_a_server_that_waits_for_the_child_of_each_request_passes() {
    if let Some((code, found)) = exercised("wait") {
        assert_eq!(code, 0, "{found}");
    }
}
