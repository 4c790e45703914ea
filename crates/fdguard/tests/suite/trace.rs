//! `fdguard trace`, on programs in C.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{CommandOutput, fdguard};

fn victim() -> PathBuf {
    let flags = ["-O2", "-g", "-fomit-frame-pointer", "-pthread"];
    testkit::c_variant("traced", "O2", &flags).expect("a victim that compiles")
}

fn dripping() -> PathBuf {
    testkit::c_variant("drip", "O2", &["-O2", "-g"]).expect("a victim that compiles")
}

fn line(file: &str, mark: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testkit/c")
        .join(file);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().position(|line| line.contains(mark)).unwrap() + 1
}

fn trace(arguments: &[&str], program: impl AsRef<Path>, words: &[&str]) -> CommandOutput {
    let mut command = fdguard();
    command.arg("trace").args(arguments).arg("--");
    CommandOutput::of(command.arg(program.as_ref()).args(words).output().unwrap())
}

#[test]
fn r18_a_leak_is_found_with_its_line_and_the_exit_code_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.json");
    let said = trace(&["--json", "-o", file.to_str().unwrap()], dripping(), &[]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert_eq!(said.text(), "done\n", "its output is its own");
    assert_eq!(said.stderr, "");
    let found: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(found["verdict"], "leaking");
    let finding = &found["findings"][0];
    assert_eq!(finding["class"], "eventfd");
    let origin = &finding["origin"];
    let culprit = &origin["culprit"];
    assert_eq!(culprit["line"], line("drip.c", "/* LEAK */"));
    assert_eq!(
        (&culprit["function"], &culprit["language"]),
        (&"arm".into(), &"c".into())
    );
    assert_eq!(origin["closed"], 0);
    assert_eq!(origin["stack"][1]["function"], "careless");
    assert!(origin["live"].as_u64().unwrap() > 50, "{origin}");
    assert!(origin["oldest_age_seconds"].as_f64().unwrap() > 1.0);
    assert!(origin["thread"].is_u64());
    let coverage = &found["coverage"];
    assert_eq!(
        (&coverage["backend"], &coverage["lost_events"]),
        (&"preload".into(), &0.into())
    );
    assert!(coverage["attributed_fds"].as_u64().unwrap() > 50);
}

#[test]
fn sites_are_told_on_stderr_with_their_stack() {
    let said = trace(&[], victim(), &["leak"]);
    assert_eq!((said.code, said.text()), (0, "last 1\n"));
    let place = format!("traced.c:{} helper", line("traced.c", "/* LEAK helper */"));
    assert!(said.stderr.contains("12 live of 12"), "{}", said.stderr);
    assert!(said.stderr.contains(&place), "{}", said.stderr);
    assert!(said.stderr.contains(" careless\n"), "{}", said.stderr);
}

#[test]
fn the_programs_own_failure_is_passed_on() {
    assert_eq!(trace(&[], "sh", &["-c", "exit 7"]).code, 7);
    assert_eq!(trace(&[], "sh", &["-c", "kill -9 $$"]).code, 137);
    assert_eq!(trace(&[], "true", &[]).code, 0);
    let absent = trace(&[], "fdguard-no-such-program", &[]);
    assert_eq!(absent.code, 127);
    assert!(
        absent
            .stderr
            .starts_with("fdguard: fdguard-no-such-program: not found")
    );
    assert_eq!(trace(&[], "/etc/passwd", &[]).code, 126);
    assert_eq!(trace(&["--for", "soon"], "true", &[]).code, 2);
}

#[test]
fn a_static_program_runs_and_the_gap_says_what_is_missing() {
    let Some(program) = testkit::c_variant("drip", "static", &["-O2", "-static"]) else {
        testkit::skip("no static C library");
        return;
    };
    let said = trace(&["--json", "--source", "launch"], program, &["3"]);
    let text = said.text().strip_prefix("done\n").unwrap().to_owned();
    let found: Value = serde_json::from_str(&text).unwrap();
    let gaps = found["gaps"].as_array().unwrap();
    let is_told = |gap: &Value| gap["why"].as_str().unwrap().contains("statically linked");
    assert!(gaps.iter().any(is_told), "{gaps:?}");
    assert_eq!(found["coverage"]["attributed_fds"], 0);
}

#[test]
fn a_script_that_becomes_a_static_program_is_told_and_its_table_is_not_taken_for_the_programs() {
    let Some(program) = testkit::c_variant("drip", "static", &["-O2", "-static"]) else {
        testkit::skip("no static C library");
        return;
    };
    let script = "exec 3</dev/null 4</dev/null 5</dev/null; exec \"$0\" 3";
    let said = trace(
        &["--json", "--source", "launch"],
        "bash",
        &["-c", script, program.to_str().unwrap()],
    );
    let found: Value = serde_json::from_str(said.text().strip_prefix("done\n").unwrap()).unwrap();
    let gaps = found["gaps"].as_array().unwrap();
    let is_told = |gap: &Value| gap["why"].as_str().unwrap().contains("statically linked");
    assert!(gaps.iter().any(is_told), "{gaps:?}");
    assert_eq!(found["coverage"]["attributed_fds"], 0);
}

#[test]
fn a_program_that_is_gone_before_the_first_look_is_still_a_document() {
    let said = trace(&["--json"], "true", &[]);
    let found = said.json();
    assert_eq!(found["schema"], "fdguard.diagnosis/1");
    assert_eq!(found["process"]["comm"], "true");
}

#[test]
fn nothing_is_left_behind() {
    let seen = fdguard()
        .args(["trace", "--", "sh", "-c", "echo $FDGUARD_TRACE_DIR"])
        .output()
        .unwrap();
    let dir = String::from_utf8(seen.stdout).unwrap();
    let dir = Path::new(dir.trim());
    assert!(dir.is_absolute(), "{}", dir.display());
    assert!(!dir.exists());
}

#[test]
fn a_time_limit_ends_the_program_and_is_no_failure_of_its_own() {
    let said = trace(&["--for", "300ms"], "sleep", &["1000"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
}

#[test]
fn a_signal_to_the_tracer_reaches_the_program() {
    let mut command: Command = fdguard();
    command.args([
        "trace",
        "--",
        "sh",
        "-c",
        "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done",
    ]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn r20_a_line_that_forgets_on_its_error_path_alone_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.json");
    let victim = testkit::c_variant("error_path", "O1", &["-O1", "-g"]).unwrap();
    let said = trace(&["--json", "-o", file.to_str().unwrap()], victim, &[]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    let found: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let finding = &found["findings"][0];
    assert_eq!(
        finding["origin"]["culprit"]["line"],
        line("error_path.c", "/* OPENED */")
    );
    assert_eq!(finding["origin"]["partly"], true, "{finding:#}");
    let why = finding["why"].as_str().unwrap();
    assert!(
        why.contains("only on some paths, such as after a failed start"),
        "{why}"
    );
}

#[test]
fn a_program_that_cannot_be_run_is_told_once() {
    let said = trace(&[], "/etc/passwd", &[]);
    assert_eq!(said.code, 126);
    assert_eq!(
        said.stderr.matches("Permission denied").count(),
        1,
        "{}",
        said.stderr
    );
    assert!(
        said.stderr
            .starts_with("fdguard: /etc/passwd cannot be run: Permission denied"),
        "{}",
        said.stderr
    );
}
