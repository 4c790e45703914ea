//! fdguard's check on fdguard's host: what cycles of sessions leave in it.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;

use super::{CommandOutput, fdguard};

/// One cycle: a session on a terminal and one on pipes are opened, used, timed out and closed, and
/// one is left to its client's end.
const CYCLE: &str = r#"
import http.client, json, sys
port = int(sys.argv[1])
def ask(method, path, body=None, want=200):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, body and json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status == want, (method, path, answer.status, text)
    return json.loads(text)
for more in ({}, {"channel": "pipes"}):
    id = ask("POST", "/v1/sessions", {"program": "bash", **more}, 201)["id"]
    done = ask("POST", f"/v1/sessions/{id}/exec", {"code": "(setsid sleep 100 >/dev/null 2>&1 &); echo hi"})
    assert done["stdout"]["text"].strip() == "hi", done
    done = ask("POST", f"/v1/sessions/{id}/exec", {"code": "sleep 100", "timeout_ms": 20})
    assert done["outcome"]["how"] == "timed-out", done
    receipt = ask("DELETE", f"/v1/sessions/{id}")
    assert receipt["survivors"] == 0, receipt
client = ask("POST", "/v1/clients", {"name": "cycle"}, 201)["id"]
ask("POST", "/v1/sessions", {"program": "bash", "client": client}, 201)
ask("DELETE", f"/v1/clients/{client}")
"#;

#[test]
fn r15_our_own_check_finds_no_leak_in_our_own_host() {
    if Command::new("python3").arg("--version").output().is_err() {
        testkit::skip("no python3");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("cycle.py");
    fs::write(&script, CYCLE).unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let exercise = format!("python3 {} {port}", script.display());
    let (ready, listen) = (format!("tcp:{port}"), format!("127.0.0.1:{port}"));
    let mut command = fdguard();
    command.args([
        "check",
        "--json",
        "--exercise",
        &exercise,
        "--ready",
        &ready,
    ]);
    command.args(["--warmup", "2", "--cycles", "10", "--"]);
    command.arg(env!("CARGO_BIN_EXE_fdguard"));
    command.args(["host", "--no-warm", "--no-token", "--listen", &listen]);
    let said = CommandOutput::of(command.output().unwrap());
    let document: Value = serde_json::from_str(said.text().lines().last().unwrap()).unwrap();
    assert_eq!(said.code, 0, "{}\n{document:#}", said.stderr);
    assert_eq!(document["findings"], serde_json::json!([]), "{document:#}");
    assert_eq!(document["coverage"]["backend"], "preload", "{document:#}");
    assert!(
        document["check"]["exercises"][0]["cycles"].as_u64() >= Some(10),
        "{document:#}"
    );
}
