//! Children under `fdguard trace`: those that pile up are a finding with the line that starts them.

use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::skip;

use super::{CommandOutput, fdguard};

pub(super) fn script(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/python");
    dir.join(name).canonicalize().unwrap()
}

/// The line of a source with this mark.
pub(super) fn line(source: &Path, mark: &str) -> usize {
    let text = std::fs::read_to_string(source).unwrap();
    let wanted = format!("START {mark}");
    let is_it = |line: &str| line.trim_end_matches(" */").ends_with(&wanted);
    text.lines().position(is_it).unwrap() + 1
}

/// The exit code and the document of a trace of this mode; `None` without Python.
fn traced(mode: &str) -> Option<(i32, Value)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = fdguard();
    command.args(["trace", "--every", "100ms", "--json", "-o"]);
    command.arg(file.path()).args(["--", "python3"]);
    command.arg(script("starts.py")).arg(mode);
    let said = CommandOutput::of(command.output().unwrap());
    if said.code == 127 {
        skip("no python3");
        return None;
    }
    let text = std::fs::read_to_string(file.path()).unwrap();
    Some((said.code, serde_json::from_str(&text).unwrap()))
}

/// The findings that count.
fn counting(document: &Value) -> Vec<&Value> {
    let findings = document["findings"].as_array().unwrap().iter();
    findings.filter(|one| one["severity"] != "info").collect()
}

#[track_caller]
fn is_at(finding: &Value, mark: &str) {
    let culprit = &finding["origin"]["culprit"];
    let file = culprit["file"].as_str().unwrap_or_default();
    assert!(file.ends_with("/starts.py"), "{finding}");
    assert_eq!(
        culprit["line"],
        line(&script("starts.py"), mark),
        "{finding}"
    );
}

#[test]
fn r38_a_child_for_each_request_that_nobody_waits_for_is_one_finding_with_its_line() {
    let Some((code, found)) = traced("task") else {
        return;
    };
    let counting = counting(&found);
    let [finding] = counting.as_slice() else {
        panic!("{counting:#?}");
    };
    assert_eq!((code, &finding["rule"]), (1, &"unwaited-child".into()));
    is_at(finding, "task");
    assert_eq!(finding["class"], Value::Null);
    // It ends its children with itself, and some of them may have been gone at the last look.
    let count = finding["count"].as_u64().unwrap();
    assert!((20..=24).contains(&count), "{finding:#}");
    let why = finding["why"].as_str().unwrap();
    let sentence = format!("{count} child processes (`sleep`) started at starts.py:");
    assert!(why.starts_with(&sentence), "{why}");
    assert_eq!(found["verdict"], "leaking");
}

/// Node starts a child by a call of its own C code.
#[test]
fn r38_in_node_the_line_is_that_of_the_script() {
    const SCRIPT: &str = "const { spawn } = require('child_process');
const kept = [];
function handle() {
  kept.push(spawn('sleep', ['1000'], { stdio: 'ignore' })); // START node
  if (kept.length < 24) return;
  for (const one of kept) process.kill(one.pid, 'SIGKILL');
  process.exit(0);
}
setInterval(handle, 100);
";
    let dir = tempfile::tempdir().unwrap();
    let (script, file) = (dir.path().join("app.js"), dir.path().join("result"));
    std::fs::write(&script, SCRIPT).unwrap();
    let mut command = fdguard();
    command.args(["trace", "--json", "-o"]).arg(&file);
    let said = CommandOutput::of(command.args(["--", "node"]).arg(&script).output().unwrap());
    if said.code == 127 {
        return skip("no node");
    }
    let found: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let counting = counting(&found);
    let [finding] = counting.as_slice() else {
        panic!("{counting:#?}");
    };
    assert_eq!(finding["rule"], "unwaited-child");
    let culprit = &finding["origin"]["culprit"];
    assert_eq!(culprit["line"], line(&script, "node"), "{finding:#}");
    assert_eq!(culprit["language"], "node");
}

#[test]
fn r38_the_pipes_of_children_that_pile_up_belong_to_the_same_finding() {
    let Some((code, found)) = traced("pipes") else {
        return;
    };
    let counting = counting(&found);
    let [finding] = counting.as_slice() else {
        panic!("{counting:#?}");
    };
    assert_eq!(code, 1);
    is_at(finding, "task");
    let why = finding["why"].as_str().unwrap();
    assert!(
        why.contains("child processes (`sleep`) started at"),
        "{why}"
    );
}

#[test]
fn r38_children_that_ended_and_are_kept_are_counted_as_zombies() {
    let Some((code, found)) = traced("kept") else {
        return;
    };
    let counting = counting(&found);
    let finding = counting.iter().find(|one| one["rule"] == "unwaited-child");
    let finding = finding.unwrap_or_else(|| panic!("{found}"));
    assert_eq!(code, 1);
    is_at(finding, "kept");
    let why = finding["why"].as_str().unwrap();
    assert!(
        why.contains("still running") && why.contains("exited (zombies)"),
        "{why}"
    );
}

#[test]
fn r15_workers_that_are_forked_first_and_replaced_are_no_finding() {
    if let Some((code, found)) = traced("pool") {
        assert_eq!((code, counting(&found)), (0, Vec::new()));
    }
}

#[test]
fn r15_children_that_are_waited_for_are_no_finding() {
    if let Some((code, found)) = traced("waits") {
        assert_eq!((code, counting(&found)), (0, Vec::new()));
    }
}
