//! Sessions over the wire, with real interpreters.

use std::io::{BufRead as _, BufReader, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::http_harness::{ServedHost, descriptors, events};

/// The output of an event, as text or as base64.
fn bytes(data: &Value) -> Vec<u8> {
    match data["text"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => STANDARD.decode(data["base64"].as_str().unwrap()).unwrap(),
    }
}

#[test]
fn a_session_is_opened_used_reset_and_closed() {
    let served = ServedHost::start();
    let id = served.bash();
    let done = served.exec(&id, "cd /; X=7; echo out; echo err >&2; (exit 3)");
    assert_eq!(done["schema"], "fdguard.exec/1");
    assert_eq!(
        done["outcome"],
        json!({"how": "exited", "status": 3}),
        "{done}"
    );
    assert_eq!(
        (&done["stdout"]["text"], &done["stderr"]["text"]),
        (&json!("out\n"), &json!("err\n"))
    );
    assert_eq!(served.exec(&id, "echo $X")["stdout"]["text"], "7\n");
    let one = served.send("GET", &format!("/v1/sessions/{id}"), "").json();
    assert_eq!((&one["id"], &one["program"]), (&json!(id), &json!("bash")));
    let all = served.send("GET", "/v1/sessions", "").json();
    assert_eq!(all["sessions"].as_array().unwrap().len(), 1);
    let nothing = served
        .send("POST", &format!("/v1/sessions/{id}/interrupt"), "")
        .json();
    assert_eq!(nothing["was_running"], false);
    let reset = served
        .send("POST", &format!("/v1/sessions/{id}/reset"), "")
        .json();
    assert_eq!(
        (&reset["reason"], &reset["clean"]),
        (&json!("reset"), &json!(true)),
        "{reset}"
    );
    assert_eq!(
        served.exec(&id, "echo ${X-gone}; pwd")["stdout"]["text"],
        "gone\n/\n"
    );
    let receipt = served
        .send("DELETE", &format!("/v1/sessions/{id}"), "")
        .json();
    assert_eq!(
        (&receipt["clean"], &receipt["survivors"]),
        (&json!(true), &json!(0)),
        "{receipt}"
    );
    let after = served.send(
        "POST",
        &format!("/v1/sessions/{id}/exec"),
        "{\"code\":\"true\"}",
    );
    assert!([404, 410].contains(&after.status), "{after:?}");
    assert!(served.stop().is_empty());
}

#[test]
fn output_is_streamed_in_its_order_and_ends_with_done() {
    let served = ServedHost::start();
    let id = served.bash();
    let body = json!({"code": "for i in 1 2 3; do echo line $i; done; printf '\\377'; exit_code() { return 4; }; exit_code"});
    let path = format!("/v1/sessions/{id}/exec");
    let answer = served.send_with(
        "POST",
        &path,
        &body.to_string(),
        "accept: text/event-stream\r\n",
    );
    assert!(
        answer.head.contains("content-type: text/event-stream"),
        "{answer:?}"
    );
    let events = events(&answer.body);
    let (last, before) = events.split_last().unwrap();
    assert!(
        before.iter().all(|(name, _)| name == "output"),
        "{events:?}"
    );
    // In which pieces it comes depends on when it was read; the bytes do not.
    let output: Vec<u8> = before.iter().flat_map(|(_, data)| bytes(data)).collect();
    assert_eq!(output, b"line 1\nline 2\nline 3\n\xff", "{events:?}");
    let is_coded = |(_, data): &(String, Value)| data["base64"].is_string();
    assert!(
        before.iter().any(is_coded),
        "a byte that is no text was told as text: {events:?}"
    );
    assert_eq!(last.0, "done");
    assert_eq!(last.1["outcome"], json!({"how": "exited", "status": 4}));
    // The first line arrives while the command runs: it ends only after the line was read.
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let code = format!(
        "echo first; until [ -e {} ]; do sleep 0.01; done; echo second",
        go.display()
    );
    let mut stream = served.connect();
    let request = served.request(
        "POST",
        &path,
        &json!({"code": code}).to_string(),
        "accept: text/event-stream\r\n",
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("first")));
    std::fs::write(&go, "").unwrap();
    assert!(lines.any(|line| line.contains("second")));
    assert!(lines.any(|line| line.contains("event: done")));
}

#[test]
fn a_session_that_is_busy_says_so_also_to_who_wants_a_stream() {
    let served = ServedHost::start();
    let id = served.bash();
    let path = format!("/v1/sessions/{id}/exec");
    let mut first = served.connect();
    let body = json!({"code": "sleep 30"}).to_string();
    first
        .write_all(served.request("POST", &path, &body, "").as_bytes())
        .unwrap();
    served.eventually("busy", |host| host.session(&id).unwrap().busy_ms.is_some());
    for more in ["", "accept: text/event-stream\r\n"] {
        let busy = served.send_with("POST", &path, "{\"code\":\"true\"}", more);
        assert_eq!(
            (busy.status, busy.code().as_str()),
            (409, "busy"),
            "{busy:?}"
        );
    }
    let interrupted = served
        .send("POST", &format!("/v1/sessions/{id}/interrupt"), "")
        .json();
    assert_eq!(interrupted["was_running"], true);
    let answer = super::http_harness::read_answer(first);
    assert_eq!(answer.json()["outcome"]["how"], "interrupted", "{answer:?}");
}

#[test]
fn who_disconnects_interrupts_its_command_and_the_session_lives() {
    let served = ServedHost::start();
    let id = served.bash();
    served.exec(&id, "X=kept");
    for more in ["", "accept: text/event-stream\r\n"] {
        let mut stream = served.connect();
        let body = json!({"code": "sleep 1000", "timeout_ms": 600_000}).to_string();
        let request = served.request("POST", &format!("/v1/sessions/{id}/exec"), &body, more);
        stream.write_all(request.as_bytes()).unwrap();
        served.eventually("busy", |host| host.session(&id).unwrap().busy_ms.is_some());
        drop(stream);
        served.eventually("free", |host| host.session(&id).unwrap().busy_ms.is_none());
        assert_eq!(served.exec(&id, "echo $X")["stdout"]["text"], "kept\n");
    }
    let metrics = served.send("GET", "/metrics", "").body;
    assert!(
        metrics.contains("fdguard_host_abandoned_commands_total 2\n"),
        "{metrics}"
    );
}

#[test]
fn the_sessions_of_a_client_end_with_its_connection() {
    let served = ServedHost::start();
    let client = served
        .send("POST", "/v1/clients", "{\"name\":\"test\"}")
        .json();
    let client = client["id"].as_str().unwrap().to_owned();
    let body = json!({"program": "bash", "client": client, "ready_within_ms": 20_000});
    let session = served.send("POST", "/v1/sessions", &body.to_string());
    assert_eq!(session.status, 201, "{session:?}");
    let mut stream = served.connect();
    let request = served.request("GET", &format!("/v1/clients/{client}/attach"), "", "");
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "event: attached"));
    assert_eq!(served.host.sessions().len(), 1);
    drop(lines);
    served.eventually("closed", |host| host.sessions().is_empty());
    let gone = served.send("POST", &format!("/v1/clients/{client}/renew"), "");
    assert_eq!(gone.status, 404, "{gone:?}");
}

#[test]
fn five_hundred_requests_leave_no_descriptor() {
    let served = ServedHost::start();
    let id = served.bash();
    served.exec(&id, "true");
    served.eventually("at rest", |host| {
        host.session(&id).unwrap().busy_ms.is_none()
    });
    let before = descriptors();
    for round in 0..125 {
        served.exec(&id, "echo hello");
        served.send("GET", "/v1/sessions", "");
        served.send("GET", "/v1/health", "");
        let answer = served.send("POST", "/v1/sessions", "{\"program\":1}");
        assert_eq!(answer.status, 422, "round {round}");
    }
    // The connection of the last answer may still have been open when the baseline was taken.
    served.eventually("at the baseline", |_| descriptors() <= before);
    let receipts = served.stop();
    assert_eq!(receipts.len(), 1);
    assert!(receipts[0].clean, "{receipts:?}");
}

#[test]
fn scopes_close_what_they_hold_and_say_how() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let served =
        ServedHost::with(|settings| settings.roots = fdguard_host::Roots::open(&[&root]).unwrap());
    let log = root.join("log.jsonl");
    std::fs::write(&log, "{}\n").unwrap();
    let id = served.bash();
    let body = json!({"name": "agent", "root": root}).to_string();
    let scope = served.send("POST", "/v1/scopes", &body);
    assert_eq!(scope.status, 201, "{scope:?}");
    let scope = format!("/v1/scopes/{}", scope.json()["id"].as_str().unwrap());
    for resource in [
        json!({"session": {"id": id}}),
        json!({"file": {"path": "log.jsonl", "end": "archive"}}),
    ] {
        let added = served.send("POST", &format!("{scope}/resources"), &resource.to_string());
        assert_eq!(added.status, 201, "{added:?}");
    }
    let outside = served.send(
        "POST",
        &format!("{scope}/resources"),
        "{\"file\":{\"path\":\"/etc/passwd\",\"end\":\"delete\"}}",
    );
    assert_eq!(outside.status, 422, "{outside:?}");
    // The caller is the test itself, which is not a process of the scope.
    let closed = served.send("DELETE", &scope, "");
    assert_eq!(closed.status, 200, "{closed:?}");
    assert_eq!(closed.json()["success"], true, "{closed:?}");
    assert!(!log.exists() && root.join("archive/log.jsonl").exists());
    assert!(served.host.sessions().is_empty());
}

#[test]
fn logs_below_a_root_are_archived_with_a_receipt() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let served =
        ServedHost::with(|settings| settings.roots = fdguard_host::Roots::open(&[&root]).unwrap());
    let log = root.join("a.log");
    std::fs::write(&log, "one\ntwo\n").unwrap();
    let body = json!({"files": [log], "to": root.join("old"), "wait_ms": 0});
    let answer = served.send("POST", "/v1/archive", &body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    let report = answer.json();
    assert_eq!(
        (&report["schema"], &report["success"]),
        (&json!("fdguard.archive/1"), &json!(true))
    );
    assert_eq!(report["files"][0]["lines"], 2, "{report}");
    assert_eq!(
        std::fs::read_to_string(root.join("old/a.log")).unwrap(),
        "one\ntwo\n"
    );
}

#[test]
fn a_call_is_answered_or_aborted() {
    let served = ServedHost::start();
    // The server calls itself: one peer that answers, and one that never does.
    let url = format!("http://{}/v1/health", served.address);
    let answer = served.send("POST", "/v1/calls", &json!({"url": url}).to_string());
    assert_eq!(
        (answer.status, &answer.json()["status"]),
        (200, &json!(200)),
        "{answer:?}"
    );
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let mut stream = served.connect();
    let request = served.request("POST", "/v1/calls", &json!({"url": url}).to_string(), "");
    stream.write_all(request.as_bytes()).unwrap();
    let mut id = None;
    served.eventually("a call runs", |_| {
        let calls = served.send("GET", "/v1/calls", "").json();
        id = calls["calls"][0]["id"].as_str().map(str::to_owned);
        id.is_some()
    });
    let aborted = served.send("POST", &format!("/v1/calls/{}/abort", id.unwrap()), "");
    assert_eq!(aborted.status, 200, "{aborted:?}");
    let answer = super::http_harness::read_answer(stream);
    assert_eq!((answer.status, answer.code().as_str()), (409, "aborted"));
    let nobody = served.send("POST", "/v1/calls", "{\"url\":\"http://127.0.0.1:1/\"}");
    assert_eq!(nobody.status, 502, "{nobody:?}");
}
