//! A recorded watch replays with the same output.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::Victim;

use super::watching::{Watching, diagnosis};
use super::{CommandOutput, fdguard, run};

/// A leak of files, watched and recorded; returns the output and the recording.
fn recorded(dir: &tempfile::TempDir, name: &str) -> (Value, String) {
    let path = dir.path().join(name).to_str().unwrap().to_owned();
    let mut victim = Victim::start("leaker");
    let mut watching = Watching::over(&victim, &["--json", "--samples", "--record", &path]);
    watching.leak(&mut victim, "1 file", 60);
    watching.leak(&mut victim, "1", 60);
    let said = watching.stop();
    victim.finish();
    (diagnosis(&said), path)
}

#[test]
fn r13_a_replay_finds_what_the_watch_found() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["plain.jsonl", "packed.jsonl.zst"] {
        let (live, path) = recorded(&dir, name);
        // How sure the watch is depends on the pace of the victim, which a busy machine changes.
        assert_ne!(live["findings"], json!([]), "{live}");
        let said = run(["watch", "--json", "--from", &path]);
        assert_eq!((said.code, &*said.stderr), (1, ""));
        assert_eq!(diagnosis(&said), live, "{name}");
    }
}

#[test]
fn r13_the_samples_of_a_replay_are_those_of_the_watch() {
    let dir = tempfile::tempdir().unwrap();
    let (live, path) = recorded(&dir, "log");
    let said = run(["watch", "--json", "--samples", "--from", &path]);
    assert_eq!(diagnosis(&said), live);
    assert_eq!(live["samples"], said.text().lines().count() - 1);
    // Through a pipe, which can be read only once.
    let mut command = fdguard();
    command.args(["watch", "--json", "--samples", "--from", "-"]);
    command.stdin(Stdio::from(fs::File::open(&path).unwrap()));
    let piped = CommandOutput::of(command.output().unwrap());
    assert_eq!((piped.code, &*piped.stderr), (1, ""));
    assert_eq!(piped.text(), said.text());
}

#[test]
fn r13_a_recording_can_be_judged_by_other_settings() {
    let dir = tempfile::tempdir().unwrap();
    let (live, path) = recorded(&dir, "log");
    let said = run(["watch", "--json", "--max", "100", "--from", &path]);
    let document = diagnosis(&said);
    let rules_of = |document: &Value| -> Vec<Value> {
        let findings = document["findings"].as_array().unwrap();
        findings.iter().map(|one| one["rule"].clone()).collect()
    };
    let (before, rules) = (rules_of(&live), rules_of(&document));
    assert!(!before.contains(&json!("absolute-level")), "{before:?}");
    assert!(rules.contains(&json!("absolute-level")), "{rules:?}");
    // On a busy machine the victim may have leaked in one step.
    assert!(before.iter().all(|rule| rules.contains(rule)), "{rules:?}");
}

#[test]
fn r13_a_recording_that_was_cut_gives_the_verdict_so_far_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (live, path) = recorded(&dir, "log");
    let bytes = fs::read(&path).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    // In the middle of a line, some looks before the end.
    let end = text.trim_end().rfind("\n{\"look\"").unwrap() + 20;
    fs::write(&path, &bytes[..end]).unwrap();
    let said = run(["watch", "--json", "--from", &path]);
    assert_eq!(said.code, 1);
    let document = diagnosis(&said);
    assert_eq!(document["ended"], "recording-cut");
    assert_eq!(document["verdict"], live["verdict"]);
    let gap = &document["gaps"][0];
    assert_eq!(gap["what"], "the end of the recording");
    let human = run(["watch", "--from", &path]);
    let note = "The recording is incomplete. The verdict covers the part that exists.";
    assert!(human.text().contains(note), "{}", human.text());
}
