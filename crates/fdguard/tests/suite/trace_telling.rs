//! One line that leaks for one caller and not for another.

use std::fs;

use serde_json::Value;
use testkit::{have, skip};

use super::tracing::line_of;
use super::{CommandOutput, fdguard};

fn finding(words: &[&str]) -> Value {
    let mut command = fdguard();
    command.args(["trace", "--json", "--for", "14s", "--every", "100ms", "--"]);
    let said = CommandOutput::of(command.args(words).output().unwrap());
    let last = said.text().lines().last().unwrap_or_default().to_owned();
    let found: Value = serde_json::from_str(&last).unwrap();
    found["findings"][0].clone()
}

#[test]
fn r19_the_caller_that_leaks_is_told_beside_the_line_that_both_share() {
    let program = testkit::c_variant("drip", "O2", &["-O2", "-g"]).unwrap();
    let finding = finding(&[program.to_str().unwrap()]);
    let origin = &finding["origin"];
    assert_eq!(origin["culprit"]["line"], line_of("drip.c", "/* LEAK */"));
    assert_eq!(origin["telling"]["function"], "careless", "{origin}");
    assert_eq!(origin["telling"]["language"], "c");
    // The frame of an optimised caller has the line after the call, or the call itself.
    let call = line_of("drip.c", "static int careless") as u64 + 2;
    assert_eq!(origin["telling"]["line"], call);
}

/// One helper for logs, one caller that closes them and one that does not.
const LOGS: &str = r#"
import os, sys, time

def open_log(name):
    return open(os.devnull, "a")  # OPEN

def audit():
    with open_log("audit") as log:
        log.write("seen\n")

kept = []

def request():
    kept.append(open_log("request"))  # LEAK

while True:
    audit()
    request()
    time.sleep(0.02)
"#;

#[test]
fn r19_the_same_in_python() {
    if !have("python3") {
        return skip("needs python3");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("logs.py");
    fs::write(&file, LOGS).unwrap();
    let finding = finding(&["python3", file.to_str().unwrap()]);
    let origin = &finding["origin"];
    let line = |mark: &str| LOGS.lines().position(|line| line.ends_with(mark)).unwrap() + 1;
    assert_eq!(origin["culprit"]["line"], line("# OPEN"), "{origin}");
    assert_eq!(
        (&origin["telling"]["function"], &origin["telling"]["line"]),
        (&"request".into(), &line("# LEAK").into()),
        "{origin}"
    );
}

#[test]
fn a_line_that_only_leaks_has_no_telling_caller() {
    let program = testkit::c_variant("holder", "O2", &["-O2", "-g"]).unwrap();
    let mut command = fdguard();
    command.args(["trace", "--"]).arg(program);
    let said = CommandOutput::of(command.output().unwrap());
    assert!(said.stderr.contains("7 live of 7"), "{}", said.stderr);
    assert!(!said.stderr.contains("only there"), "{}", said.stderr);
}
