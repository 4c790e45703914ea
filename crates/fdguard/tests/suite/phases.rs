//! Baseline, during, after: more than two snapshots of one process.

use std::path::Path;

use serde_json::{Value, json};
use testkit::Victim;

use super::failure::{COULD_NOT_LOOK, USAGE, assert_failed};
use super::{run, snap};

fn save(victim: &Victim, dir: &Path, name: &str) -> String {
    let path = dir.join(name).to_str().unwrap().to_owned();
    let said = snap(victim.pid(), &["--json", "-o", &path]);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    path
}

#[test]
fn r14_work_that_cleans_up_is_back_to_baseline() {
    let dir = tempfile::tempdir().unwrap();
    let mut victim = Victim::start("leaker");
    victim.tell("3 file");
    let baseline = save(&victim, dir.path(), "baseline.json");
    victim.tell("5 socket");
    let during = save(&victim, dir.path(), "during.json");
    victim.tell("-5");
    let pid = victim.pid().to_string();
    let args = ["diff", &baseline, &during, &pid, "--fail-on", "leftover"];
    let said = run(args);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let text = said.text();
    for part in [
        "leaker (pid ",
        "3 phases in ",
        "baseline.json → during.json",
        "6 → 11 descriptors: 5 opened, 0 closed, 0 changed",
        "+    ×5  tcp:UNBOUND",
        "-    ×5  tcp:UNBOUND",
        "back to baseline: nothing opened since baseline.json is still open",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // There are still changes.
    let args = ["diff", &baseline, &during, &pid, "--exit-code"];
    assert_eq!(run(args).code, 1);
    let document = run(["diff", &baseline, &during, &pid, "--json"]).good_json();
    assert_eq!(document["schema"], "fdguard.phases/1");
    assert_eq!(document["verdict"], "back-to-baseline");
    assert_eq!(document["leftover"], json!([]));
    victim.finish();
}

#[test]
fn r14_what_is_left_over_is_listed_and_fails_when_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    let mut victim = Victim::start("leaker");
    let a = save(&victim, dir.path(), "a");
    victim.tell("4 file");
    let b = save(&victim, dir.path(), "b");
    victim.tell("-2");
    victim.tell("1");
    let c = save(&victim, dir.path(), "c");
    let named = [
        format!("idle={a}"),
        format!("load={b}"),
        format!("rest={c}"),
    ];
    let said = run(["diff", &named[0], &named[1], &named[2]]);
    assert_eq!((said.code, &*said.stderr), (0, ""), "only when asked to");
    let text = said.text();
    for part in [
        "idle → load",
        "load → rest",
        "not back to baseline: 3 descriptors opened since idle are still open",
        "/leaked-*.log  since load  fds 3, 4",
        "since rest  fd 5",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let args = ["diff", &named[0], &named[1], &named[2], "--json"];
    let said = run(args.iter().chain(&["--fail-on", "leftover"]));
    assert_eq!(said.code, 1);
    let document = said.json();
    assert_eq!(document["verdict"], "not-back-to-baseline");
    assert_eq!(document["process"]["pid"], victim.pid());
    let phases = document["phases"].as_array().unwrap();
    let names: Vec<&Value> = phases.iter().map(|phase| &phase["name"]).collect();
    assert_eq!(names, ["idle", "load", "rest"]);
    let files = &document["leftover"][0];
    assert_eq!(
        (&files["class"], &files["count"]),
        (&json!("regular"), &json!(2))
    );
    assert_eq!(
        (&files["fds"], &files["since"]),
        (&json!([3, 4]), &json!(1))
    );
    let closed = &document["steps"][1]["delta"]["closed"];
    assert_eq!(closed.as_array().unwrap().len(), 2);
    victim.finish();
}

#[test]
fn r14_two_snapshots_keep_their_document_and_may_fail_on_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let mut victim = Victim::start("leaker");
    victim.tell("2 file");
    let before = save(&victim, dir.path(), "before");
    victim.tell("-1");
    let fewer = save(&victim, dir.path(), "fewer");
    let args = ["diff", &before, &fewer, "--fail-on", "leftover", "--json"];
    let document = run(args).good_json();
    assert_eq!(document["schema"], "fdguard.diff/1", "less is no leftover");
    let backwards = ["diff", &fewer, &before, "--fail-on", "leftover"];
    assert_eq!(run(backwards).code, 1);
    victim.finish();
}

#[test]
fn phases_of_two_processes_and_of_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Victim::start("leaker"), Victim::start("leaker"));
    let a = save(&one, dir.path(), "a");
    let b = save(&two, dir.path(), "b");
    let said = run(["diff", &a, &a, &b]);
    assert_failed(&said, COULD_NOT_LOOK);
    let telling = "a and b are snapshots of different processes";
    assert!(said.stderr.contains(telling), "{}", said.stderr);
    let said = run(["diff", &a, &a, "x=/no/such"]);
    assert_failed(&said, COULD_NOT_LOOK);
    let telling = "/no/such: no such file";
    assert!(said.stderr.contains(telling), "{}", said.stderr);
    let said = run(["diff", &a, &a, &a, "--fail-on", "everything"]);
    assert_failed(&said, USAGE);
    one.finish();
    two.finish();
}

#[test]
fn a_file_whose_name_looks_like_a_named_phase_is_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let victim = Victim::start("leaker");
    let odd = save(&victim, dir.path(), "x=y.json");
    let said = run(["diff", &odd, &odd, &odd]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let telling = "x=y.json → x=y.json";
    assert!(said.text().contains(telling), "{}", said.text());
    victim.finish();
}
