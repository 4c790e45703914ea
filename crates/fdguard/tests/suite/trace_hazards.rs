//! `fdguard trace` on misuse: the rule and the lines of all parties, and nothing for correct
//! programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{CommandOutput, fdguard};

const SOURCE: &str = "hazards.c";

fn victim() -> PathBuf {
    let flags = ["-O1", "-g", "-pthread", "-fno-optimize-sibling-calls"];
    testkit::c_variant("hazards", "O1", &flags).expect("a victim that compiles")
}

/// The line of the victim's source with this mark.
fn line(mark: &str) -> u64 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testkit/c")
        .join(SOURCE);
    let text = std::fs::read_to_string(path).unwrap();
    let mark = format!("/* {mark} */");
    text.lines().position(|line| line.contains(&mark)).unwrap() as u64 + 1
}

struct TracedRun {
    said: CommandOutput,
    found: Value,
}

fn trace_with(mode: &str, prepare: impl FnOnce(&mut Command)) -> TracedRun {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.json");
    let mut command = fdguard();
    command.args(["trace", "--json", "-o"]).arg(&file).arg("--");
    command.arg(victim()).arg(mode).arg(dir.path());
    prepare(&mut command);
    let said = CommandOutput::of(command.output().unwrap());
    let found = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    TracedRun { said, found }
}

fn trace(mode: &str) -> TracedRun {
    trace_with(mode, |_| {})
}

impl TracedRun {
    /// The only hazard, which must be of this rule.
    fn only(&self, rule: &str) -> &Value {
        let hazards = self.found["hazards"].as_array().unwrap();
        let rules: Vec<&Value> = hazards.iter().map(|hazard| &hazard["rule"]).collect();
        assert_eq!(rules, [rule], "{:#?}", self.found);
        assert_eq!((self.said.code, self.said.text()), (1, "done\n"));
        &hazards[0]
    }
}

/// The line of a party, which must be in `SOURCE`.
fn at(hazard: &Value, party: &str) -> u64 {
    let culprit = &hazard[party]["culprit"];
    assert!(
        culprit["file"]
            .as_str()
            .is_some_and(|file| file.ends_with(SOURCE)),
        "{party}: {hazard:#}"
    );
    culprit["line"].as_u64().unwrap()
}

#[test]
fn r21_a_double_close_with_one_thread_is_told_with_both_closes_and_fails_nothing() {
    let traced = trace("double-close");
    let hazards = traced.found["hazards"].as_array().unwrap();
    assert_eq!((hazards.len(), traced.said.code), (1, 0), "{hazards:#?}");
    let hazard = &hazards[0];
    assert_eq!(hazard["severity"], "info");
    assert_eq!(at(hazard, "opener"), line("JOURNAL"));
    assert_eq!(
        (at(hazard, "closer"), at(hazard, "user")),
        (line("SECOND"), line("FIRST"))
    );
    assert_eq!(
        (&hazard["class"], &hazard["fault"]),
        (&"regular".into(), &"closer".into())
    );
}

#[test]
fn r40_a_double_close_that_hits_another_thread_is_told_with_its_victim() {
    let traced = trace("double-close-hits");
    let hazards = traced.found["hazards"].as_array().unwrap();
    let hazard = hazards.iter().find(|one| one["rule"] == "double-close");
    let hazard = hazard.unwrap_or_else(|| panic!("{hazards:#?}"));
    assert_eq!(at(hazard, "opener"), line("CONNECT"));
    assert_eq!(at(hazard, "closer"), line("FINISH"));
    assert_eq!(at(hazard, "victim"), line("JOURNAL"));
    assert_eq!(
        (&hazard["severity"], traced.said.code),
        (&"critical".into(), 1)
    );
}

#[test]
fn r40_a_double_close_beside_another_thread_counts() {
    let traced = trace("double-close-threaded");
    let hazard = traced.only("double-close");
    assert_eq!(hazard["severity"], "warning");
    assert_eq!(at(hazard, "closer"), line("SECOND"));
}

/// Nothing was reported: a range of numbers was never taken for the close of one of them.
#[test]
fn r40_a_range_that_is_closed_under_a_thread_is_named_when_the_thread_goes_on() {
    let traced = trace("closefrom");
    let hazard = traced.only("use-after-close");
    assert_eq!(at(hazard, "opener"), line("JOURNAL"));
    assert_eq!(at(hazard, "closer"), line("SWEEP"));
    assert_eq!(at(hazard, "user"), line("SWEPT"));
    assert_eq!(hazard["fault"], "closer");
}

/// A start script failed in CI by it.
#[test]
fn r40_a_pipeline_of_bash_passes() {
    let said = fdguard()
        .args(["trace", "--", "bash", "-c", "echo a | cat"])
        .output();
    let said = CommandOutput::of(said.unwrap());
    assert_eq!((said.code, said.text()), (0, "a\n"), "{}", said.stderr);
}

#[test]
fn r40_numbers_that_were_never_open_are_told_with_their_lines_and_fail_nothing() {
    let traced = trace("never-open");
    let hazards = traced.found["hazards"].as_array().unwrap();
    let told = hazards.iter().map(|one| {
        let party = if one["closer"].is_null() {
            "user"
        } else {
            "closer"
        };
        (
            one["rule"].as_str().unwrap(),
            one["fd"].as_u64(),
            at(one, party),
        )
    });
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    let expected = [
        ("never-open", None, line("MINUS")),
        ("never-open", Some(77), line("NEVER")),
    ];
    assert_eq!(told, expected, "{hazards:#?}");
    assert_eq!((traced.said.code, traced.said.text()), (0, "done\n"));
}

#[test]
fn r40_a_use_after_close_names_opener_closer_and_user() {
    let traced = trace("use-after-close");
    let hazard = traced.only("use-after-close");
    assert_eq!(at(hazard, "opener"), line("JOURNAL"));
    assert_eq!(
        (at(hazard, "closer"), at(hazard, "user")),
        (line("CLOSED"), line("USED"))
    );
}

#[test]
fn r40_a_close_under_a_reader_names_who_is_inside_and_where() {
    let traced = trace("stranger-close");
    let hazard = traced.only("stranger-close");
    assert_eq!(at(hazard, "opener"), line("CONNECT"));
    assert_eq!(
        (at(hazard, "closer"), at(hazard, "user")),
        (line("STRANGER"), line("INSIDE"))
    );
    assert_ne!(hazard["closer"]["thread"], hazard["user"]["thread"]);
    assert_eq!(hazard["class"], "unix");
}

#[test]
fn r40_a_record_that_lands_in_a_file_names_all_four() {
    let traced = trace("recycled-write");
    let hazards = traced.found["hazards"].as_array().unwrap();
    let rules: Vec<&Value> = hazards.iter().map(|one| &one["rule"]).collect();
    assert_eq!(rules, ["stranger-close", "recycled-write"], "{hazards:#?}");
    let hazard = &hazards[1];
    assert_eq!(at(hazard, "opener"), line("CONNECT"));
    assert_eq!(
        (at(hazard, "closer"), at(hazard, "user")),
        (line("INTERRUPT"), line("STALE"))
    );
    assert_eq!(at(hazard, "victim"), line("JOURNAL"));
    let message = hazard["message"].as_str().unwrap();
    assert!(
        message.contains("TLS record (application data, 19 bytes)"),
        "{message}"
    );
    assert_eq!(at(&hazards[0], "user"), line("POLLED"));
}

#[test]
fn r43_a_lock_that_another_descriptors_close_drops() {
    let traced = trace("lock-drop");
    let hazard = traced.only("lock-drop");
    assert_eq!(
        (at(hazard, "closer"), at(hazard, "user")),
        (line("DROPPED"), line("LOCKED"))
    );
}

#[test]
fn r21_a_close_that_is_tried_again_after_a_signal() {
    let library = testkit::c_variant("interrupted", "so", &["-O1", "-shared", "-fPIC"]);
    let library = library.expect("a library that compiles");
    let traced = trace_with("close-retry", |command| {
        command.env("LD_PRELOAD", &library);
    });
    let hazard = traced.only("close-retry");
    assert_eq!(
        (at(hazard, "closer"), at(hazard, "user")),
        (line("RETRIED"), line("RETRIED"))
    );
}

#[test]
fn r7_select_beyond_its_set_names_the_caller_and_who_opened() {
    let traced = trace("select-past-1024");
    let hazard = traced.only("select-past-1024");
    assert_eq!(
        (at(hazard, "user"), at(hazard, "opener")),
        (line("SELECT"), line("HIGH"))
    );
    assert_eq!(hazard["fd"], 1500);
}

#[test]
fn r19_a_full_table_is_told_with_who_holds_it() {
    let traced = trace("exhaustion");
    let hazards = traced.found["hazards"].as_array().unwrap();
    assert!(
        hazards.iter().all(|one| one["rule"] == "exhaustion"),
        "{hazards:#?}"
    );
    let users: Vec<u64> = hazards.iter().map(|one| at(one, "user")).collect();
    assert!(
        users.contains(&line("HOARD")) && users.contains(&line("REFUSED")),
        "{users:?}"
    );
    let holder = &hazards[0]["holders"][0];
    assert_eq!(holder["culprit"]["line"], line("HOARD"));
    assert!(holder["live"].as_u64().unwrap() > 30, "{holder}");
}

#[test]
fn r40_what_only_looks_like_misuse_raises_nothing() {
    let traced = trace("innocent");
    assert_eq!(
        traced.found["hazards"].as_array().unwrap().len(),
        0,
        "{:#}",
        traced.found["hazards"]
    );
    assert_eq!((traced.said.code, traced.said.text()), (0, "done\n"));
    // One thread worked in a descriptor table of its own.
    let gaps = traced.found["gaps"].to_string();
    assert!(gaps.contains("what 1 thread of process"), "{gaps}");
}

#[test]
fn hazards_come_first_for_people() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = fdguard();
    command
        .args(["trace", "--"])
        .arg(victim())
        .arg("use-after-close")
        .arg(dir.path());
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.code, 1, "{}", said.stderr);
    let first = said.stderr.lines().take(4).collect::<Vec<_>>().join("\n");
    assert!(first.contains("use-after-close"), "{}", said.stderr);
    let used = format!("{SOURCE}:{}", line("USED"));
    assert!(said.stderr.contains(&used), "{}", said.stderr);
}

/// Line of this mark in a script.
fn mark(script: &str, name: &str) -> u64 {
    let wanted = format!("// {name}");
    script
        .lines()
        .position(|line| line.ends_with(&wanted))
        .unwrap() as u64
        + 1
}

#[test]
fn r21_a_double_close_in_javascript_names_both_lines_that_asked() {
    const SCRIPT: &str = "const fs = require('fs');
const fd = fs.openSync(__filename); // OPENED
fs.closeSync(fd); // FIRST
fs.close(fd, (error) => console.log(error.code)); // SECOND
";
    for node in testkit::runtimes("node", &[18, 20, 22]) {
        let dir = tempfile::tempdir().unwrap();
        let (file, script) = (dir.path().join("trace.json"), dir.path().join("twice.js"));
        std::fs::write(&script, SCRIPT).unwrap();
        let mut command = fdguard();
        command.args(["trace", "--json", "-o"]).arg(&file).arg("--");
        command
            .arg(&node.path)
            .arg(&script)
            .env_remove("NODE_OPTIONS");
        let said = CommandOutput::of(command.output().unwrap());
        assert_eq!((said.code, said.text()), (1, "EBADF\n"), "{}", said.stderr);
        let found: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let hazard = &found["hazards"][0];
        let line = |party: &str| hazard[party]["culprit"]["line"].as_u64();
        assert_eq!(hazard["rule"], "double-close", "Node {}", node.version);
        let lines = ["opener", "closer", "user"].map(line);
        let expected = ["OPENED", "SECOND", "FIRST"].map(|name| Some(mark(SCRIPT, name)));
        assert_eq!(lines, expected, "Node {}: {hazard:#}", node.version);
    }
}
