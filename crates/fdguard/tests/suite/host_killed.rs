//! A host killed at random points: none of its processes is left, the next host knows what it had,
//! and its log is complete.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::hosted::{Hosted, LONG, eventually, marked};

/// Works until the host is killed.
fn work(hosted: &Hosted, round: u64) {
    let code = match round % 3 {
        0 => "setsid sleep 100 & (trap '' HUP TERM; setsid sleep 100 &) ; sleep 100",
        1 => "yes",
        _ => "echo hi",
    };
    let open = json!({"program": "bash", "channel": if round.is_multiple_of(2) { json!("pipes") } else { json!({"pty": {"columns": 80, "rows": 24}}) }});
    while let Ok((201, session)) = hosted.try_ask("POST", "/v1/sessions", &open.to_string()) {
        let Some(id) = session["id"].as_str() else {
            return;
        };
        let body = json!({"code": code, "timeout_ms": 30}).to_string();
        let _killed = hosted.try_ask("POST", &format!("/v1/sessions/{id}/exec"), &body);
        if round.is_multiple_of(2) {
            let _killed = hosted.try_ask("DELETE", &format!("/v1/sessions/{id}"), "");
        }
    }
}

/// Kills a busy host; returns how many processes it had and how long they survived it.
fn kill_at_work(state: &Path, round: u64) -> (usize, Duration) {
    let mut hosted = Hosted::on_socket(&["--state", state.to_str().unwrap()]);
    let mark = hosted.dir.path().to_str().unwrap().to_owned();
    let pid = hosted.pid();
    let mut there = 0;
    let mut killed = Instant::now();
    thread::scope(|scope| {
        let hosted = &hosted;
        for lane in 0..3 {
            scope.spawn(move || work(hosted, round + lane));
        }
        eventually("it works", LONG, || marked(&mark).len() > 3);
        thread::sleep(Duration::from_millis(round * 37 % 150));
        there = marked(&mark).len();
        super::hosted::kill(pid);
        killed = Instant::now();
    });
    hosted.child.wait().unwrap();
    eventually("no process of it is left", LONG, || {
        marked(&mark).is_empty()
    });
    assert_log_is_whole(&hosted);
    (there, killed.elapsed())
}

/// Each event is a complete line, except the one that was being written.
fn assert_log_is_whole(hosted: &Hosted) {
    let text = fs::read_to_string(hosted.dir.path().join("events")).unwrap();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    assert!(whole.lines().count() > 1, "{text}");
    for line in whole.lines() {
        let event: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(event["event"].is_string(), "{line}");
    }
}

#[test]
fn r31_a_host_that_is_killed_at_work_leaves_no_process_and_the_next_one_knows() {
    let rounds: u64 =
        std::env::var("FDGUARD_TEST_KILLS").map_or(8, |rounds| rounds.parse().unwrap());
    let lanes: Vec<_> = thread::scope(|scope| {
        let lane = |lane: u64| {
            let state = tempfile::tempdir().unwrap();
            let mut seen = Vec::new();
            for round in 0..rounds / 4 {
                seen.push(kill_at_work(state.path(), lane * 5 + round));
            }
            assert_reconciled(state.path());
            seen
        };
        let lanes: Vec<_> = (0..4)
            .map(|number| scope.spawn(move || lane(number)))
            .collect();
        lanes
            .into_iter()
            .flat_map(|lane| lane.join().unwrap())
            .collect()
    });
    eprintln!("processes at the kill, and how long they lived on: {lanes:?}");
    assert!(
        lanes.iter().any(|(there, _)| *there > 6),
        "nothing was there: {lanes:?}"
    );
    let slowest = lanes.iter().map(|(_, took)| *took).max().unwrap();
    assert!(slowest < Duration::from_secs(10), "{lanes:?}");
}

/// The next host ends the entries of the killed ones, and has sessions of its own.
fn assert_reconciled(state: &Path) {
    let hosted = Hosted::on_socket(&["--state", state.to_str().unwrap()]);
    let (_, health) = hosted.ask("GET", "/v1/health", "");
    assert!(health["registry"].is_object(), "{health}");
    let events = hosted.events();
    let told = events.iter().find(|event| event["event"] == "reconcile");
    let told = told.unwrap_or_else(|| panic!("{events:?}"));
    assert!(told["changed"].as_u64() > Some(1), "{told}");
    let session = hosted.open(&json!({"program": "bash"}));
    assert_eq!(
        hosted.close(session["id"].as_str().unwrap())["survivors"],
        0
    );
}

#[test]
fn r51_what_a_killed_host_left_is_told_by_a_dry_run_that_changes_nothing() {
    let state = tempfile::tempdir().unwrap();
    let mut hosted = Hosted::on_socket(&["--state", state.path().to_str().unwrap()]);
    let (status, session) = hosted.ask("POST", "/v1/sessions", r#"{"program": "bash"}"#);
    assert_eq!(status, 201, "{session}");
    super::hosted::kill(hosted.pid());
    hosted.child.wait().unwrap();
    let gone = format!("/proc/{}", session["pid"]);
    eventually("its session is gone", LONG, || !Path::new(&gone).exists());
    let look = |words: &[&str]| {
        let mut command = super::fdguard();
        command.args(["host", "--reconcile", "--state"]);
        let said =
            super::CommandOutput::of(command.arg(state.path()).args(words).output().unwrap());
        let told: Value = serde_json::from_str(said.text()).unwrap();
        (said.code, told)
    };
    for _ in 0..2 {
        let (code, told) = look(&["--dry-run"]);
        assert_eq!((code, &told["dry_run"]), (1, &json!(true)), "{told}");
        let ids: Vec<_> = told["changed"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["id"])
            .collect();
        assert!(ids.contains(&&session["id"]), "{told}");
    }
    assert_eq!(look(&[]).0, 1);
    let (code, told) = look(&["--dry-run"]);
    assert_eq!((code, &told["changed"]), (0, &json!([])), "{told}");
}

#[test]
fn a_dir_without_a_registry_is_told_and_stays_empty() {
    let state = tempfile::tempdir().unwrap();
    let mut command = super::fdguard();
    command.args(["host", "--reconcile", "--dry-run", "--state"]);
    let said = super::CommandOutput::of(command.arg(state.path()).output().unwrap());
    assert_eq!(said.code, 3, "{}", said.stderr);
    assert!(said.stderr.contains("no such registry"), "{}", said.stderr);
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
}
