//! Snap, change, diff.

use std::path::Path;

use serde_json::{Value, json};
use testkit::Victim;

use super::{run, snap};

fn save(victim: &Victim, path: &Path) {
    let said = snap(victim.pid(), &["--json", "-o", path.to_str().unwrap()]);
    assert_eq!((said.code, &*said.stderr), (0, ""));
}

fn class_change<'a>(document: &'a Value, class: &str) -> Option<&'a Value> {
    let classes = document["delta"]["classes"].as_array().unwrap();
    classes.iter().find(|row| row["class"] == class)
}

#[test]
fn r14_what_leaked_between_two_snapshots_is_told_by_class() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let mut victim = Victim::start("leaker");
    victim.tell("5 file");
    save(&victim, &a);
    victim.tell("7 socket");
    victim.tell("2 pipe");
    victim.tell("30");
    save(&victim, &b);
    let [a, b] = [&a, &b].map(|path| path.to_str().unwrap());
    let document = run(["diff", a, b, "--json"]).good_json();
    assert_eq!(document["schema"], "fdguard.diff/1");
    let delta = &document["delta"];
    assert_eq!(delta["same_process"], true);
    assert_eq!(delta["count"], 41);
    assert_eq!(delta["opened"].as_array().unwrap().len(), 41);
    assert_eq!(
        (&delta["closed"], &delta["changed"]),
        (&json!([]), &json!([]))
    );
    for (class, after) in [("eventfd", 30), ("tcp:UNBOUND", 7)] {
        let row = class_change(&document, class).unwrap();
        assert_eq!(
            (&row["before"], &row["after"]),
            (&json!(0), &json!(after)),
            "{class}"
        );
    }
    assert_eq!(class_change(&document, "regular"), None);
    let backwards = run(["diff", b, a, "--json"]).good_json();
    assert_eq!(backwards["delta"]["closed"].as_array().unwrap().len(), 41);
    assert_eq!(backwards["delta"]["count"], -41);

    let human = run(["diff", a, b]);
    assert_eq!(human.code, 0);
    assert!(
        human.text().contains("41 opened, 0 closed, 0 changed"),
        "{}",
        human.text()
    );
    assert!(
        human.text().contains("+30  eventfd (0 → 30)"),
        "{}",
        human.text()
    );
    victim.finish();
}

#[test]
fn r14_the_exit_code_tells_a_difference_when_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a");
    let mut victim = Victim::start("leaker");
    victim.tell("3 file");
    save(&victim, &a);
    let (a, pid) = (a.to_str().unwrap(), victim.pid().to_string());
    assert_eq!(run(["diff", a, a, "--exit-code"]).code, 0);
    assert_eq!(run(["diff", a, &pid, "--exit-code"]).code, 0);
    victim.tell("1 file");
    assert_eq!(run(["diff", a, &pid]).code, 0);
    let said = run(["diff", a, &pid, "--exit-code", "--json"]);
    assert_eq!(said.code, 1);
    assert_eq!(said.json()["delta"]["opened"].as_array().unwrap().len(), 1);
    victim.finish();
}

#[test]
fn r14_a_number_that_was_reused_is_closed_and_opened() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a");
    let mut victim = Victim::start("leaker");
    victim.tell("1 file");
    save(&victim, &a);
    victim.tell("-1");
    victim.tell("1 file");
    let pid = victim.pid().to_string();
    let document = run(["diff", a.to_str().unwrap(), &pid, "--json"]).good_json();
    let delta = &document["delta"];
    assert_eq!(
        (&delta["opened"][0]["fd"], &delta["closed"][0]["fd"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(delta["count"], 0);
    victim.finish();
}

#[test]
fn two_processes_are_compared_as_two() {
    let (one, two) = (Victim::start("leaker"), Victim::start("starved"));
    let [a, b] = [&one, &two].map(|victim| victim.pid().to_string());
    let document = run(["diff", &a, &b, "--json"]).good_json();
    assert_eq!(document["delta"]["same_process"], false);
    assert_eq!(document["before"]["process"]["pid"], one.pid());
    assert_eq!(document["after"]["count"], 32);
    let human = run(["diff", &a, &b]);
    assert!(
        human.text().contains("two different processes"),
        "{}",
        human.text()
    );
    one.finish();
    two.finish();
}

#[test]
fn a_document_of_several_processes_is_not_one_side() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("many");
    let path = path.to_str().unwrap();
    let victim = Victim::start("parent");
    let said = snap(victim.pid(), &["--tree", "--json", "-o", path]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let failed = run(["diff", path, path]);
    assert_eq!(failed.code, 3);
    assert!(failed.stdout.is_empty() && failed.stderr.contains("snapshots"));
    let shown = run(["snap", "--from", path, "--json"]).good_json();
    assert_eq!(shown["schema"], "fdguard.snapshots/1");
    victim.finish();
}
