//! `fdguard inspect --watch`: the moment of a write, and the writer.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::inspect::{damage, made};
use super::tracing::Tracing;
use super::{fdguard, run};

struct Watching {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Watching {
    /// Starts it, and waits until it watches.
    fn start(path: &Path) -> Self {
        let mut command = fdguard();
        command.args(["inspect", "--watch", "--json"]).arg(path);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut watching = Self { child, lines };
        assert_eq!(watching.next()["event"], "begin");
        watching
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Sends Ctrl-C; returns its last line and its exit code.
    fn end(mut self) -> (Value, Option<i32>) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let last = self.next();
        (last, self.child.wait().unwrap().code())
    }
}

#[test]
fn r42_the_moment_is_told_and_ctrl_c_ends_with_a_summary() {
    let (dir, path) = made("wal");
    let mut watching = Watching::start(dir.path());
    damage(&path);
    let bad = watching.next();
    assert_eq!(
        (&bad["event"], &bad["schema"]),
        (
            &Value::from("bad"),
            &Value::from("fdguard.inspection-event/1")
        )
    );
    assert_eq!(bad["findings"][0]["rule"], "tls-record");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(watching.next()["event"], "deleted");
    let (last, code) = watching.end();
    assert_eq!(
        (&last["event"], &last["went_bad"], code),
        (&Value::from("end"), &Value::from(1), Some(1))
    );
}

#[test]
fn a_watch_that_saw_nothing_ends_with_0_after_its_time() {
    let (_dir, path) = made("wal");
    let said = run([
        "inspect",
        "--watch",
        "--for",
        "200ms",
        path.to_str().unwrap(),
    ]);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let lines: Vec<&str> = said.text().lines().collect();
    assert_eq!(lines[0], "watching 1 database");
    assert!(lines[1].contains("0 went bad"), "{lines:?}");
}

/// A thread uses its descriptor after a stranger closed it and a database got the number.
const STALE: &str = r#"
import os, socket, sqlite3, sys, threading
a, b = socket.socketpair()
fd, ready, go = a.fileno(), threading.Event(), threading.Event()
def worker():
    os.write(fd, b"hello")
    ready.set()
    go.wait()
    os.read(fd, 5)
    os.write(fd, bytes([0x17, 3, 3, 0, 0x13]) + bytes(range(100, 119)))
t = threading.Thread(target=worker)
t.start()
ready.wait()
a.close()
c = sqlite3.connect(sys.argv[1])
c.execute("SELECT count(*) FROM t").fetchall()
print(os.readlink(f"/proc/self/fd/{fd}"), flush=True)
sys.stdin.readline()
go.set()
t.join()
print("done", flush=True)
sys.stdin.read()
"#;

#[test]
fn r42_a_traced_holder_tells_who_wrote() {
    let (_dir, path) = made("wal");
    let name = path.to_str().unwrap();
    let mut traced = Tracing::start(&[], &["python3", "-c", STALE, name]);
    assert_eq!(traced.line(), name, "the database has the socket's number");
    let mut watching = Watching::start(&path);
    traced.say("go");
    assert_eq!(traced.line(), "done");
    let bad = watching.next();
    assert_eq!(bad["event"], "bad");
    let holder = &bad["holders"]["processes"][0];
    let hazard = &bad["hazards"][0];
    assert_eq!(
        (&hazard["rule"], &hazard["pid"]),
        (&Value::from("recycled-write"), &holder["pid"]),
        "{bad:#}"
    );
    assert!(
        hazard["user"]["culprit"]["function"]
            .as_str()
            .is_some_and(|function| function.contains("worker")),
        "{hazard:#}"
    );
    assert!(
        hazard["message"].as_str().unwrap().contains("TLS"),
        "{hazard:#}"
    );
    watching.end();
    traced.end();
}
