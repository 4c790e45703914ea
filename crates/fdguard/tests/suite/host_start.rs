//! How a host gets its sockets, which clients can reach it, and an end that does not wait.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use super::fdguard;
use super::hosted::{Hosted, LONG, eventually};

/// Binds a socket at this address, hands it over as number 3, and becomes the host.
const PARENT: &str = r"
import os, socket, sys
listening = socket.create_server((sys.argv[1], 0))
os.dup2(listening.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')
os.execv(sys.argv[2], sys.argv[2:])
";

fn handed(address: &str, token: &std::path::Path) -> Command {
    let mut command = Command::new("python3");
    command
        .args(["-c", PARENT, address])
        .arg(fdguard().get_program());
    command.args(["host", "--no-warm", "--log-format", "json", "--token-file"]);
    command.arg(token);
    command
}

#[test]
fn a_socket_that_the_parent_hands_over_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    let hosted = Hosted::of(handed("127.0.0.1", &token), dir, token);
    assert!(hosted.at.starts_with("http://127.0.0.1:"), "{}", hosted.at);
    let session = hosted.open(&json!({"program": "bash"}));
    let id = session["id"].as_str().unwrap();
    // Sessions inherit neither the variables nor the socket.
    let code = "echo [$LISTEN_FDS$LISTEN_PID]; readlink /proc/self/fd/* | grep -c socket:";
    let (status, done) = hosted.exec(id, code, LONG);
    assert_eq!(
        (status, done["stdout"]["text"].as_str()),
        (200, Some("[]\n0\n")),
        "{done}"
    );
    assert_eq!(hosted.close(id)["survivors"], 0);
}

#[test]
fn a_socket_of_the_parent_that_others_can_reach_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let output = handed("0.0.0.0", &dir.path().join("token"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let first = said.lines().next().unwrap();
    assert!(
        first.contains("inherited socket") && first.contains("can be reached"),
        "{first}"
    );
}

#[test]
fn a_host_for_other_machines_wants_a_token_and_a_name_that_it_was_told() {
    let hosted = Hosted::start(&[
        "--listen",
        "0.0.0.0:0",
        "--allow-remote",
        "--allow-host",
        "agents.example",
    ]);
    let port = hosted.at.rsplit(':').next().unwrap().to_owned();
    let ask = |name: &str, token: &str| {
        let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let request = format!(
            "GET /v1/sessions HTTP/1.1\r\nhost: {name}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        super::hosted::read_answer(stream).unwrap().0
    };
    let token = fs::read_to_string(&hosted.token).unwrap();
    assert_eq!(ask("agents.example", token.trim()), 200);
    assert_eq!(ask(&format!("agents.example:{port}"), token.trim()), 200);
    assert_eq!(ask("evil.example", token.trim()), 421);
    assert_eq!(ask("agents.example", "wrong"), 401);
}

#[test]
fn a_second_interrupt_does_not_wait_and_nothing_is_left() {
    let root = tempfile::tempdir().unwrap();
    let mut hosted = Hosted::on_socket(&["--root", root.path().to_str().unwrap()]);
    let body = json!({"name": "deaf", "root": root.path()}).to_string();
    let (status, scope) = hosted.ask("POST", "/v1/scopes", &body);
    assert_eq!(status, 201, "{scope}");
    // Its clean-up sends TERM, and waits for two seconds.
    let deaf = "trap '' TERM HUP INT; echo deaf; while :; do sleep 1000; done";
    let program = json!({"program": {"command": ["sh", "-c", deaf], "log": "log"}}).to_string();
    let path = format!("/v1/scopes/{}/resources", scope["id"].as_str().unwrap());
    assert_eq!(hosted.ask("POST", &path, &program).0, 201);
    eventually("it is deaf", LONG, || {
        fs::read(root.path().join("log")).is_ok_and(|text| text == b"deaf\n")
    });
    hosted.signal(Signal::INT);
    eventually("it stops", LONG, || {
        hosted
            .events()
            .iter()
            .any(|event| event["event"] == "host_stopping")
    });
    hosted.signal(Signal::INT);
    assert_eq!(hosted.end(), Some(0));
    let events = hosted.events();
    let last = events.last().unwrap();
    assert_eq!(
        (&last["event"], &last["how"]),
        (&json!("host_end"), &json!("interrupted")),
        "{events:?}"
    );
    // The keeper detects its end, and ends the tree.
    eventually("nothing is left", LONG, || hosted.others().is_empty());
}
