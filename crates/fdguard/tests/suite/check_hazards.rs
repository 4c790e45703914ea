//! `fdguard check` compared with `valgrind --track-fds=yes`: what valgrind finds, and what it
//! misses.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{CommandOutput, fdguard};

fn victim() -> PathBuf {
    let flags = ["-O1", "-g", "-pthread", "-fno-optimize-sibling-calls"];
    testkit::c_variant("hazards", "O1", &flags).expect("a victim that compiles")
}

fn line(mark: &str) -> u64 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/c/hazards.c");
    let text = std::fs::read_to_string(path).unwrap();
    let mark = format!("/* {mark} */");
    text.lines().position(|line| line.contains(&mark)).unwrap() as u64 + 1
}

fn check(mode: &str) -> (i32, Value) {
    check_with(mode, &[])
}

fn check_with(mode: &str, flags: &[&str]) -> (i32, Value) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = fdguard();
    let result = dir.path().join("check.json");
    command
        .args(["check", "--json"])
        .args(flags)
        .arg("-o")
        .arg(&result)
        .arg("--");
    let said = CommandOutput::of(
        command
            .arg(victim())
            .arg(mode)
            .arg(dir.path())
            .output()
            .unwrap(),
    );
    let found = std::fs::read(&result).unwrap_or_else(|error| panic!("{error}: {}", said.stderr));
    (said.code, serde_json::from_slice(&found).unwrap())
}

/// valgrind's output for the same run; `None` if it is not installed.
fn valgrind(mode: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let said = Command::new("valgrind")
        .args(["-q", "--tool=none", "--track-fds=yes"])
        .arg(victim())
        .arg(mode)
        .arg(dir.path())
        .output();
    let Ok(said) = said else {
        testkit::skip("no valgrind to compare with");
        return None;
    };
    Some(String::from_utf8_lossy(&said.stderr).into_owned())
}

fn rules(found: &Value) -> Vec<&str> {
    let hazards = found["hazards"].as_array().unwrap();
    hazards
        .iter()
        .map(|one| one["rule"].as_str().unwrap())
        .collect()
}

#[test]
fn r40_what_valgrind_finds_is_found_with_the_same_lines() {
    for (mode, parts) in [
        (
            "double-close",
            [
                ("opener", "JOURNAL"),
                ("closer", "SECOND"),
                ("user", "FIRST"),
            ],
        ),
        (
            "use-after-close",
            [
                ("opener", "JOURNAL"),
                ("closer", "CLOSED"),
                ("user", "USED"),
            ],
        ),
    ] {
        let (code, found) = check(mode);
        // In a single-threaded program a second close that fails does no harm.
        let expected = i32::from(mode != "double-close");
        assert_eq!((code, rules(&found)), (expected, vec![mode]), "{found:#}");
        for (part, mark) in parts {
            let at = &found["hazards"][0][part]["culprit"]["line"];
            assert_eq!(at, line(mark), "{mode} {part}");
        }
        let Some(theirs) = valgrind(mode) else {
            continue;
        };
        // valgrind before 3.21 does not look for misuse.
        let is_told = theirs.contains("already closed") || theirs.contains("File descriptor");
        if !is_told {
            testkit::skip("a valgrind that does not tell of misuse");
            continue;
        }
        for (_, mark) in parts {
            let place = format!("hazards.c:{}", line(mark));
            assert!(theirs.contains(&place), "{mode}: {theirs}");
        }
    }
}

#[test]
fn r40_a_close_under_a_reader_is_found_and_valgrind_says_nothing() {
    let (code, found) = check("stranger-close");
    assert_eq!(
        (code, rules(&found)),
        (1, vec!["stranger-close"]),
        "{found:#}"
    );
    assert_eq!(
        found["hazards"][0]["closer"]["culprit"]["line"],
        line("STRANGER")
    );
    if let Some(theirs) = valgrind("stranger-close") {
        let place = format!("hazards.c:{}", line("STRANGER"));
        assert!(!theirs.contains(&place), "{theirs}");
    }
}

#[test]
fn r40_a_stale_use_of_a_number_that_was_given_out_again_is_found_under_protection() {
    let (code, found) = check_with("stale-reuse", &["--protect"]);
    assert_eq!(
        (code, rules(&found)),
        (1, vec!["use-after-close"]),
        "{found:#}"
    );
    let hazard = &found["hazards"][0];
    assert_eq!(hazard["prevented"], true);
    assert_eq!(hazard["user"]["culprit"]["line"], line("STALE USE"));
    assert_eq!(hazard["closer"]["culprit"]["line"], line("GIVEN BACK"));
}

#[test]
fn r40_what_only_looks_like_misuse_passes() {
    let (code, found) = check("innocent");
    assert_eq!((code, rules(&found)), (0, vec![]), "{found:#}");
}
