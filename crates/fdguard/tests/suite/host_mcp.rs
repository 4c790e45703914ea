//! `fdguard host --mcp`: the messages on the two pipes, and that nothing is left when they end.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::mcp_peer::{Peer, eventually, text};
use super::running::is_alive;

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

/// A shell that has a process in the background: the numbers of both.
fn with_background(peer: &mut Peer) -> [u32; 2] {
    let result = peer.call("bash", &json!({"command": "sleep 1000 & echo $$ $!"}));
    let line = text(&result).lines().next().unwrap().to_owned();
    let mut numbers = line.split(' ').map(|word| word.parse().unwrap());
    [numbers.next().unwrap(), numbers.next().unwrap()]
}

fn all_gone(pids: &[u32]) -> bool {
    pids.iter().all(|pid| !is_alive(*pid))
}

#[test]
fn garbage_does_not_end_the_server() {
    let mut peer = Peer::start();
    let garbage: [&[u8]; 6] = [
        b"hello?\n",
        b"\xff\xfe\x00\n",
        b"\n",
        b"[1, 2]\n",
        b"{\"jsonrpc\":\"2.0\"\n",
        b"{\"no\":\"message\"}\n",
    ];
    for line in garbage {
        peer.write(line);
    }
    peer.shake_hands();
    for line in garbage {
        peer.write(line);
    }
    let unknown = peer.ask("nonsense/method", &json!({}));
    assert_eq!(peer.answer(unknown)["error"]["code"], -32601);
    let missing = peer.begin_call("nonsense", &json!({}));
    assert_eq!(peer.answer(missing)["error"]["code"], -32602);
    let long = "x".repeat(300_000);
    let result = peer.call("bash", &json!({"command": format!("echo {long} | wc -c")}));
    assert!(text(&result).starts_with("300001\n"), "{result}");
    peer.close_input();
    let (status, rest, events) = peer.ended();
    assert_eq!((status, rest.as_str()), (Some(0), ""), "{events}");
    // Lines that cannot be a message are logged: two of these, sent twice.
    assert_eq!(events.matches("mcp_line_ignored").count(), 4, "{events}");
    assert!(events.contains("hello?"), "{events}");
}

#[test]
fn errors_have_the_id_of_their_request() {
    let mut peer = Peer::start();
    peer.shake_hands();
    for (line, id, code) in [
        (
            r#"{"jsonrpc": "1.0", "id": 70, "method": "ping"}"#,
            json!(70),
            -32600,
        ),
        (
            r#"{"jsonrpc": "2.0", "id": "a", "method": "tools/call"}"#,
            json!("a"),
            -32602,
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 71, "method": "tools/list", "params": {"cursor": "x"}}"#,
            json!(71),
            -32602,
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 72, "method": "prompts/list"}"#,
            json!(72),
            -32601,
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 73, "method": "ping", "params": 7}"#,
            json!(73),
            -32600,
        ),
        (
            r#"{"jsonrpc": "2.0", "id": null, "method": "ping"}"#,
            json!(null),
            -32600,
        ),
        // Of a version without batches.
        (
            r#"[{"jsonrpc": "2.0", "id": 74, "method": "ping"}]"#,
            json!(null),
            -32600,
        ),
    ] {
        peer.write(format!("{line}\n").as_bytes());
        let heard = peer.hear();
        assert_eq!(heard["id"], id, "{line}: {heard}");
        assert!(
            heard.as_object().unwrap().contains_key("id"),
            "{line}: {heard}"
        );
        assert_eq!(heard["error"]["code"], code, "{line}: {heard}");
    }
}

#[test]
fn a_batch_of_2025_03_26_is_answered_by_one_line() {
    let mut peer = Peer::start();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-03-26", "capabilities": {},
        "clientInfo": {"name": "a test", "version": "1"},
    }});
    peer.say(&hello);
    assert_eq!(peer.hear()["result"]["protocolVersion"], "2025-03-26");
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    peer.say(&json!([note]));
    let call = json!({"name": "bash", "arguments": {"command": "echo hello"}});
    let batch = json!([
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
        {"jsonrpc": "2.0", "id": 3, "method": "ping"},
        {"jsonrpc": "2.0", "id": 4, "method": "initialize", "params": hello["params"]},
        7,
    ]);
    peer.say(&batch);
    let heard = peer.hear();
    let mut ids: Vec<String> = heard
        .as_array()
        .unwrap_or_else(|| panic!("{heard}"))
        .iter()
        .map(|one| one["id"].to_string())
        .collect();
    ids.sort();
    assert_eq!(ids, ["2", "3", "4", "null"], "{heard}");
    let said = heard.as_array().unwrap().iter().find(|one| one["id"] == 2);
    assert!(
        text(&said.unwrap()["result"]).starts_with("hello\n"),
        "{heard}"
    );
    // A single message is answered separately.
    peer.say(&json!({"jsonrpc": "2.0", "id": 5, "method": "ping"}));
    assert_eq!(peer.hear()["id"], 5);
}

#[test]
fn fifty_calls_leave_the_descriptors_as_they_were() {
    let mut peer = Peer::start();
    peer.shake_hands();
    peer.call("python", &json!({"code": "n = 0"}));
    peer.call("bash", &json!({"command": "true"}));
    peer.call("snap", &json!({}));
    let pid = peer.pid();
    let before = descriptors(pid);
    for _ in 0..25 {
        peer.call("python", &json!({"code": "n += 1"}));
        peer.call("bash", &json!({"command": "ls / >/dev/null"}));
    }
    let result = peer.call("python", &json!({"code": "print(n)"}));
    assert!(text(&result).starts_with("25\n"), "{result}");
    let seen = peer.call("snap", &json!({}));
    let document = &seen["structuredContent"];
    assert_eq!(document["schema"], "fdguard.snapshot/1");
    assert_eq!(document["process"]["pid"], pid, "{seen}");
    // The look itself costs descriptors: both ends of two pipes, an empty input and the keeper of
    // the helper process, unless they are closed by then.
    let count = document["count"].as_u64().unwrap();
    assert!(
        (before as u64..=before as u64 + 8).contains(&count),
        "{before} {count}"
    );
    eventually("all is given back", || descriptors(pid) == before);
}

#[test]
fn the_end_of_input_answers_what_was_asked_and_ends_the_sessions() {
    let mut peer = Peer::start();
    peer.shake_hands();
    let pids = with_background(&mut peer);
    let last = peer.begin_call("bash", &json!({"command": "sleep 0.2; echo last"}));
    peer.close_input();
    let answer = peer.answer(last);
    assert!(text(&answer["result"]).starts_with("last\n"), "{answer}");
    let (status, rest, events) = peer.ended();
    assert_eq!((status, rest.as_str()), (Some(0), ""), "{events}");
    assert!(all_gone(&pids));
    let close = events
        .lines()
        .find(|line| line.contains("event=session_close"));
    let close = close.unwrap_or_else(|| panic!("{events}"));
    assert!(
        close.contains("reason=client_gone clean=true survivors=0"),
        "{close}"
    );
}

#[test]
fn a_client_that_vanished_leaves_no_process() {
    let mut peer = Peer::start();
    peer.shake_hands();
    let pids = with_background(&mut peer);
    peer.begin_call("bash", &json!({"command": "sleep 1001"}));
    peer.begin_call(
        "python",
        &json!({"code": "import time\nwhile True: time.sleep(1)"}),
    );
    peer.begin_call("watch", &json!({"seconds": 600}));
    eventually("the command runs", || {
        let children = format!("/proc/{0}/task/{0}/children", pids[0]);
        let children = std::fs::read_to_string(children).unwrap_or_default();
        children.split_whitespace().count() == 2
    });
    let host = peer.pid();
    peer.vanish();
    let (status, _, events) = peer.ended();
    assert_eq!(status, Some(0), "{events}");
    assert!(all_gone(&pids), "{events}");
    assert!(!Path::new(&format!("/proc/{host}/fd")).exists());
    let closes = events
        .lines()
        .filter(|line| line.contains("event=session_close "));
    let closes: Vec<&str> = closes.collect();
    assert!(!closes.is_empty(), "{events}");
    assert!(
        closes.iter().all(|line| line.contains("clean=true")),
        "{events}"
    );
}

#[test]
fn term_ends_it_while_a_command_runs() {
    let mut peer = Peer::start();
    peer.shake_hands();
    let pids = with_background(&mut peer);
    peer.begin_call("bash", &json!({"command": "sleep 1001"}));
    let host = Pid::from_raw(i32::try_from(peer.pid()).unwrap()).unwrap();
    kill_process(host, Signal::TERM).unwrap();
    let (status, _, events) = peer.ended();
    assert_eq!(status, Some(0), "{events}");
    assert!(all_gone(&pids), "{events}");
    assert!(events.contains("event=host_end how=done"), "{events}");
}

#[test]
fn a_cancelled_call_is_interrupted_and_not_answered() {
    let mut peer = Peer::start();
    peer.shake_hands();
    let [shell, _] = with_background(&mut peer);
    let call = peer.begin_call("bash", &json!({"command": "sleep 1001"}));
    let children = || {
        let children = format!("/proc/{shell}/task/{shell}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        children.split_whitespace().count()
    };
    eventually("it runs", || children() == 2);
    let cancelled = json!({"requestId": call, "reason": "enough"});
    peer.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    eventually("it is interrupted", || children() == 1);
    // The next answer belongs to the next call.
    let next = peer.begin_call("python", &json!({"code": "print(1)"}));
    let heard = peer.hear();
    assert_eq!(heard["id"], next, "{heard}");
}

#[test]
fn it_does_not_listen_and_serve_one_client_at_once() {
    let said = super::run(["host", "--mcp", "--listen", "127.0.0.1:0"]);
    assert_eq!((said.code, said.text()), (2, ""), "{}", said.stderr);
    let said = super::run(["host", "--mcp", "--root", "/nonexistent"]);
    assert_eq!((said.code, said.text()), (2, ""), "{}", said.stderr);
    assert!(
        said.stderr.contains("--root /nonexistent"),
        "{}",
        said.stderr
    );
}

/// A Python program that repeatedly opens a file in line 4 and closes none.
fn leaking(dir: &Path) -> String {
    let file = dir.join("leaky.py");
    let code = "import time\nkept = []\ndef work():\n    kept.append(open('/etc/passwd'))\n\
                for _ in range(40):\n    work()\n    time.sleep(0.05)\n";
    std::fs::write(&file, code).unwrap();
    file.display().to_string()
}

/// A server that opens a file for each connection, in line 5.
const SERVER: &str = "import socket, sys\nkept = []\n\
    server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\ndef answer(client):\n\
    \x20   kept.append(open('/etc/passwd'))\n    client.close()\n\
    while True:\n    answer(server.accept()[0])\n";
/// The command for one request.
const ASK: &str = "python3 -c \"import os, socket; \
    socket.create_connection(('127.0.0.1', int(os.environ['PORT']))).recv(1)\"";

#[test]
fn a_check_names_the_line_in_a_few_lines_and_the_fix_passes() {
    let dir = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let script = dir.path().join("server.py");
    std::fs::write(&script, SERVER).unwrap();
    let mut peer = Peer::start();
    peer.shake_hands();
    let asked = json!({
        "command": ["python3", "server.py", port], "cwd": dir.path(), "env": {"PORT": port},
        "exercise": ASK, "ready": format!("tcp:{port}"), "cycles": 10, "seconds": 200,
    });
    let failed = peer.call("check", &asked);
    let said = text(&failed);
    assert!(said.starts_with("check failed; "), "{said}");
    assert!(said.contains("server.py:5 in answer"), "{said}");
    assert!(said.contains("[exit status 1, "), "{said}");
    assert!(said.lines().count() < 20, "{said}");
    let document = &failed["structuredContent"];
    assert_eq!(document["schema"], "fdguard.diagnosis/1");
    let flags = (&document["check"]["passed"], &failed["isError"]);
    assert_eq!(flags, (&json!(false), &json!(false)));

    let fixed = SERVER.replace(
        "kept.append(open('/etc/passwd'))",
        "open('/etc/passwd').close()",
    );
    std::fs::write(&script, fixed).unwrap();
    let passed = peer.call("check", &asked);
    assert!(text(&passed).starts_with("check passed; "), "{passed}");
    assert_eq!(passed["structuredContent"]["run"]["status"], 0);
}

#[test]
fn a_trace_gives_its_diagnosis_and_the_programs_output() {
    let dir = tempfile::tempdir().unwrap();
    let script = leaking(dir.path());
    let code = format!(
        "{}print('done', flush=True)\n",
        std::fs::read_to_string(&script).unwrap()
    );
    std::fs::write(&script, code).unwrap();
    let mut peer = Peer::start();
    peer.shake_hands();
    let traced = peer.call("trace", &json!({"command": ["python3", script]}));
    let document = &traced["structuredContent"];
    assert_eq!(document["coverage"]["backend"], "preload", "{traced}");
    assert_eq!(document["run"]["stdout"]["text"], "done\n", "{traced}");
    assert!(text(&traced).lines().count() < 20, "{traced}");
    // A missing program is an error, with the reason.
    let missing = peer.call("trace", &json!({"command": ["/nonexistent/program"]}));
    assert_eq!(missing["isError"], true, "{missing}");
    assert!(text(&missing).contains("/nonexistent/program"), "{missing}");
    assert!(text(&missing).contains("[exit status 127, "), "{missing}");
    let wrong = peer.call("trace", &json!({"command": []}));
    assert_eq!(text(&wrong), "invalid arguments: command: no program given");
}

#[test]
fn w22_the_tool_why_names_the_object_that_holds_the_descriptors() {
    if !testkit::is_root() {
        return testkit::skip("needs root");
    }
    let mut program = super::why::registry();
    let mut peer = Peer::start();
    peer.shake_hands();
    let answer = peer.call("why", &json!({"pid": program.id(), "seconds": 1}));
    let said = text(&answer);
    let chain = "  held by 12 Session.log ← list (12 entries) ← __main__.SESSIONS [object]";
    assert!(said.lines().any(|line| line == chain), "{said}");
    assert_eq!(answer["structuredContent"]["schema"], "fdguard.why/1");
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    let gone = peer.call("why", &json!({"pid": 4_194_304}));
    assert_eq!(gone["isError"], true, "{gone}");
    let wrong = peer.call("why", &json!({}));
    assert_eq!(text(&wrong), "invalid arguments: missing field `pid`");
}

#[test]
fn a_trial_that_is_cancelled_or_abandoned_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let begin = |peer: &mut Peer, name: &str| {
        let sign = dir.path().join(name);
        let script = format!(
            "sleep 1000 & echo $$ $! >{0}.part; mv {0}.part {0}; sleep 1001",
            sign.display()
        );
        let call = peer.begin_call(
            "trace",
            &json!({"command": ["sh", "-c", script], "seconds": 600}),
        );
        eventually("the program runs", || sign.exists());
        let pids = std::fs::read_to_string(&sign).unwrap();
        let pids: Vec<u32> = pids
            .split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect();
        (call, pids)
    };
    let mut peer = Peer::start();
    peer.shake_hands();
    let (call, pids) = begin(&mut peer, "cancelled");
    let busy = peer.call("check", &json!({"command": ["true"]}));
    assert!(text(&busy).starts_with("busy: "), "{busy}");
    let cancelled = json!({"requestId": call, "reason": "enough"});
    peer.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    eventually("the cancelled program is gone", || all_gone(&pids));
    let (_, pids) = begin(&mut peer, "abandoned");
    peer.vanish();
    let (status, _, events) = peer.ended();
    assert_eq!(status, Some(0), "{events}");
    eventually("the abandoned program is gone", || all_gone(&pids));
}
