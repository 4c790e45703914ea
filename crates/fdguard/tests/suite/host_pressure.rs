//! A host for which the machine or its client does less than it should.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::fdguard;
use super::hosted::{Hosted, LONG, eventually};

const ENOUGH: Duration = Duration::from_secs(20);

#[test]
fn a_long_command_works_without_a_directory_for_temporary_files() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    let mut command = fdguard();
    command.args(["host", "--log-format", "json", "--no-warm"]);
    command.args(["--listen", "127.0.0.1:0", "--token-file"]);
    command.arg(&token).env("TMPDIR", "/no/such/directory");
    let host = Hosted::of(command, dir, token);
    for program in ["bash", "python"] {
        let session = host.open(&json!({"program": program}));
        let id = session["id"].as_str().unwrap();
        host.exec(id, "X=17", ENOUGH);
        let padding = "#".repeat(100_000);
        let (status, said) = host.exec(id, &format!("X=18\n{padding}"), ENOUGH);
        assert_eq!((status, &said["was_reset"]), (200, &json!(false)), "{said}");
        let show = if program == "bash" {
            "echo $X"
        } else {
            "print(X)"
        };
        let (_, said) = host.exec(id, show, ENOUGH);
        let text = said["stdout"]["text"].as_str().unwrap();
        assert_eq!(text.trim(), "18", "{said}");
    }
}

#[test]
fn an_mcp_host_ends_with_its_input_although_its_output_is_full() {
    let mut child = fdguard()
        .args(["host", "--mcp", "--no-warm"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let shake = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "silent", "version": "1"}}});
    writeln!(input, "{shake}").unwrap();
    let begin = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    writeln!(input, "{begin}").unwrap();
    // Each answer has some kilobytes, and the pipe holds sixty-four.
    for id in 1..100 {
        let list = json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"});
        writeln!(input, "{list}").unwrap();
    }
    let output = child.stdout.take().unwrap();
    eventually("its output is full", LONG, || {
        rustix::io::ioctl_fionread(&output).unwrap() >= 40_000
    });
    let closed = Instant::now();
    drop(input);
    eventually("it has ended", LONG, || child.try_wait().unwrap().is_some());
    let status = child.wait().unwrap();
    assert!(status.success(), "{status} after {:?}", closed.elapsed());
}
