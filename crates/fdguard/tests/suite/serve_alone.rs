//! `fdguard serve` alone with a few processes, in a pid namespace of its own: what it costs, and
//! what cycles of requests and processes leave in it.

use std::fs;
use std::io::BufRead;
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{is_root, skip};

use super::serve::ServeProcess;
use super::{CommandOutput, fdguard};

/// Runs its arguments where no other process is seen. All of them end with it.
fn alone() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command
}

/// Many programs that open a file every 50 ms, each under a name of its own; then the command.
const CROWD: &str = r#"
import ctypes, os, subprocess, sys, time
libc = ctypes.CDLL(None)
for at in range(int(sys.argv[1])):
    if os.fork() == 0:
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 1)
        libc.prctl(15, b"crowd%d" % at, 0, 0, 0)
        held = []
        while len(held) < 900:
            held.append(os.open("/dev/null", os.O_RDONLY))
            time.sleep(0.05)
        time.sleep(1000)
sys.exit(subprocess.call(sys.argv[2:]))
"#;

/// The share of one core that a server needs for this many ticks. They are events, because each
/// question would cost more than a tick.
fn share(served: &ServeProcess, ticks: usize) -> f64 {
    let cpu = || served.overview()["own"]["cpu_seconds"].as_f64().unwrap();
    let (mut events, before) = (served.events(), cpu());
    let clock = std::time::Instant::now();
    for _ in 0..ticks {
        while !read_line(&mut events).starts_with("event: tick") {}
    }
    let passed = clock.elapsed().as_secs_f64();
    (cpu() - before) / passed
}

fn read_line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    assert!(from.read_line(&mut line).unwrap() > 0, "the stream ended");
    line
}

#[test]
fn the_budget_bounds_what_serving_costs() {
    if !is_root() {
        return skip("needs root");
    }
    let state = tempfile::tempdir().unwrap();
    let mut command = alone();
    command.args(["python3", "-c", CROWD, "30"]);
    command.arg(fdguard().get_program());
    command.args([
        "serve",
        "--no-evidence",
        "--no-token",
        "--listen",
        "127.0.0.1:0",
    ]);
    command
        .args(["--every", "1s", "--budget", "5%", "--state"])
        .arg(state.path());
    let served = ServeProcess::launch(state, command, &[]);
    // What was saved up for the first seconds is used up when looks are put off.
    testkit::wait_until("looks that are put off", || {
        served.overview()["own"]["deferred_looks"].as_u64() > Some(0)
    });
    let share = share(&served, 12);
    // The budget is for scans and looks. What is written and shown comes on top.
    assert!(share < 1.5 * 0.05, "{share}");
    assert!(share > 0.3 * 0.05, "{share}");
}

/// One cycle: every kind of request, a client that leaves in the middle, and processes that come
/// and go. Ends when the server has looked again.
const CYCLE: &str = r#"
import http.client, os, socket, subprocess, sys
port = int(sys.argv[1])
def ask(path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status == 200, (path, answer.status, text)
    return text
def ticks(count):
    events = socket.create_connection(("127.0.0.1", port))
    events.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
    with events.makefile("rb") as lines:
        assert lines.readline().startswith(b"HTTP/1.1 200")
        while count:
            count -= lines.readline().startswith(b"event: tick")
    events.close()
half = socket.create_connection(("127.0.0.1", port))
half.sendall(b"GET /api/v1/over")
for path in ("/metrics", "/healthz", "/", "/api/v1/overview", "/api/v1/findings", "/api/v1/snapshot?pid=%d" % os.getpid()):
    ask(path)
children = [subprocess.Popen(["sleep", "100"]) for _ in range(5)]
ticks(2)
for child in children:
    child.kill()
    child.wait()
half.close()
ticks(2)
"#;

#[test]
fn our_own_check_finds_no_leak_in_our_own_server() {
    if !is_root() {
        return skip("needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("cycle.py");
    fs::write(&script, CYCLE).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let exercise = format!("python3 {} {port}", script.display());
    let (ready, listen) = (format!("tcp:{port}"), format!("127.0.0.1:{port}"));
    let mut command = alone();
    // The first process of a namespace gets no signals; a shell takes that place.
    command.args(["sh", "-c", "\"$@\"; exit $?", "sh"]);
    command.arg(fdguard().get_program());
    command.args([
        "check",
        "--json",
        "--exercise",
        &exercise,
        "--ready",
        &ready,
    ]);
    command.args(["--warmup", "2", "--cycles", "10", "--"]);
    command.arg(fdguard().get_program());
    command.args(["serve", "--no-token", "--no-evidence", "--listen", &listen]);
    command.args([
        "--every",
        "100ms",
        "--sample-every",
        "100ms",
        "--budget",
        "50%",
        "--state",
    ]);
    command.arg(dir.path().join("state"));
    let said = CommandOutput::of(command.output().unwrap());
    let line = said.text().lines().last();
    let line = line.unwrap_or_else(|| panic!("nothing was said: {}", said.stderr));
    let document: Value = serde_json::from_str(line).unwrap();
    assert_eq!(said.code, 0, "{}\n{document:#}", said.stderr);
    assert_eq!(document["findings"], json!([]), "{document:#}");
    assert_eq!(document["coverage"]["backend"], "preload", "{document:#}");
    let cycles = document["check"]["exercises"][0]["cycles"].as_u64();
    assert!(cycles >= Some(10), "{document:#}");
}
