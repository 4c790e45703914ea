//! A host that is killed leaves files of agents; the next one ends them as it would have done.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::fdguard;
use super::hosted::{Hosted, LONG, eventually, lives};

fn host(state: &Path, root: &Path) -> Hosted {
    let (state, root) = (state.to_str().unwrap(), root.to_str().unwrap());
    Hosted::on_socket(&["--state", state, "--root", root])
}

/// A scope with a program that writes a log, a prompt, a directory and a file that stays.
fn agent(hosted: &Hosted, root: &Path) -> (String, u32) {
    let body = json!({"name": "agent 7", "root": root}).to_string();
    let (status, scope) = hosted.ask("POST", "/v1/scopes", &body);
    assert_eq!(status, 201, "{scope}");
    let id = scope["id"].as_str().unwrap().to_owned();
    let things = [
        json!({"program": {"command": ["sh", "-c", "for i in 1 2 3; do echo line $i; done; exec sleep 1000"], "log": "log.txt", "role": "main"}}),
        json!({"file": {"path": "prompt.md", "end": "delete"}}),
        json!({"file": {"path": "result.txt", "end": "keep"}}),
        json!({"directory": {"name": "scratch"}}),
    ];
    let mut view = Value::Null;
    for thing in things {
        let (status, said) = hosted.ask(
            "POST",
            &format!("/v1/scopes/{id}/resources"),
            &thing.to_string(),
        );
        assert_eq!(status, 201, "{said}");
        view = said;
    }
    let program = view["resources"].as_array().unwrap().iter();
    let program = program
        .into_iter()
        .find(|it| it["kind"] == "program")
        .unwrap();
    (id, u32::try_from(program["pid"].as_u64().unwrap()).unwrap())
}

fn reconcile(state: &Path) -> Value {
    let mut command = fdguard();
    command
        .args(["host", "--reconcile", "--dry-run", "--state"])
        .arg(state);
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn r52_the_next_host_ends_what_a_killed_one_left() {
    let (state, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root_path = root.path().canonicalize().unwrap();
    for name in ["prompt.md", "result.txt"] {
        fs::write(root_path.join(name), "x\n").unwrap();
    }
    let mut first = host(state.path(), &root_path);
    let (id, pid) = agent(&first, &root_path);
    eventually("its words", LONG, || {
        fs::read_to_string(root_path.join("log.txt")).is_ok_and(|text| text.ends_with("line 3\n"))
    });
    assert_eq!(
        reconcile(state.path())["scopes"],
        json!([]),
        "its host lives"
    );
    first.signal(Signal::KILL);
    first.end();
    let left = reconcile(state.path());
    assert_eq!(left["scopes"][0]["scope"], json!(id), "{left}");
    // The log, the prompt and the directory; the program ended with the host, the result stays.
    assert_eq!(left["scopes"][0]["resources"], 3, "{left}");

    let second = host(state.path(), &root_path);
    eventually("it is cleaned up", LONG, || {
        second.ask("GET", &format!("/v1/scopes/{id}"), "").1["phase"] == "closed"
    });
    let (status, done) = second.ask("DELETE", &format!("/v1/scopes/{id}"), "");
    assert_eq!(
        (status, &done["success"], &done["reason"]),
        (200, &json!(true), &json!("host-gone")),
        "{done}"
    );
    assert_eq!(
        fs::read_to_string(root_path.join("archive/log.txt")).unwrap(),
        "line 1\nline 2\nline 3\n"
    );
    let mut names: Vec<_> = fs::read_dir(&root_path)
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["archive", "result.txt"]);
    assert!(!lives(pid), "{pid}");
    assert_eq!(reconcile(state.path())["scopes"], json!([]));
    let told = second.events();
    assert!(
        told.iter()
            .any(|event| event["event"] == "scope_close" && event["reason"] == "host-gone"),
        "{told:?}"
    );
}

#[test]
fn what_a_killed_host_left_outside_of_todays_roots_stays_and_is_told() {
    let (state, root, other) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let root_path = root.path().canonicalize().unwrap();
    fs::write(root_path.join("prompt.md"), "x\n").unwrap();
    let mut first = host(state.path(), &root_path);
    let (id, _) = agent(&first, &root_path);
    first.signal(Signal::KILL);
    first.end();
    let second = host(state.path(), other.path());
    let told = second.events();
    let is_told =
        |event: &Value| event["event"] == "scope_will_failed" && event["scope"] == json!(id);
    assert!(told.iter().any(is_told), "{told:?}");
    assert!(root_path.join("prompt.md").exists());
    assert_eq!(reconcile(state.path())["scopes"][0]["scope"], json!(id));
}

#[test]
fn a_will_whose_dir_is_gone_is_told_once_and_forgotten() {
    let (state, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let of_agent = root.path().canonicalize().unwrap().join("agent");
    fs::create_dir(&of_agent).unwrap();
    let mut first = host(state.path(), root.path());
    let (id, _) = agent(&first, &of_agent);
    first.signal(Signal::KILL);
    first.end();
    fs::remove_dir_all(&of_agent).unwrap();
    let is_told = |hosted: &Hosted| {
        let events = hosted.events();
        let is_it =
            |event: &Value| event["event"] == "scope_will_failed" && event["scope"] == json!(id);
        events.iter().any(is_it)
    };
    let mut second = host(state.path(), root.path());
    assert!(is_told(&second), "{:?}", second.events());
    second.signal(Signal::TERM);
    second.end();
    assert!(!is_told(&host(state.path(), root.path())));
}
