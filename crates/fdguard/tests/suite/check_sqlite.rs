//! `fdguard check` on programs with several SQLite connections: SQLite keeps its locks, and is not
//! accused.

use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testkit::{have, skip};

use super::{CommandOutput, fdguard};

/// Two connections share a lock: it is acquired through the first and released through the second.
const SHARED_LOCK: &str = r#"
import os, sqlite3, sys
path = os.path.join(sys.argv[1], "app.db")
made = sqlite3.connect(path)
made.execute("create table t(x)")
made.executemany("insert into t values (?)", [(n,) for n in range(9)])
made.commit()
made.close()
first, second = sqlite3.connect(path), sqlite3.connect(path)
a = first.execute("select x from t"); a.fetchone()
b = second.execute("select x from t"); b.fetchone()
a.fetchall(); a.close()
b.fetchall(); b.close()
second.close()
first.close()
"#;

/// The same file is opened and closed outside SQLite while SQLite holds a lock.
const DROPPED_LOCK: &str = r#"
import os, sqlite3, sys
path = os.path.join(sys.argv[1], "app.db")
made = sqlite3.connect(path, isolation_level=None)
made.execute("create table t(x)")
made.execute("begin immediate")
def checksum():
    with open(path, "rb") as file:
        return sum(file.read())
checksum()
made.execute("commit")
made.close()
"#;

/// A server with a thread and a connection for each request, and its clients.
const SERVER: &str = r#"
import http.server, os, socketserver, sqlite3, sys, threading, urllib.request
path = os.path.join(sys.argv[1], "app.db")
made = sqlite3.connect(path)
made.execute("create table t(x)")
made.executemany("insert into t values (?)", [(n,) for n in range(200)])
made.commit()
made.close()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        database = sqlite3.connect(path, timeout=60)
        count = database.execute("select count(*) from t").fetchone()[0]
        if self.path == "/write":
            database.execute("insert into t values (1)")
            database.commit()
        database.close()
        body = str(count).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    request_queue_size = 128
server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
def client(number):
    for n in range(30):
        kind = "write" if (n + number) % 5 == 0 else "read"
        urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{kind}").read()
clients = [threading.Thread(target=client, args=(n,)) for n in range(8)]
for one in clients: one.start()
for one in clients: one.join()
server.shutdown()
server.server_close()
"#;

/// Keeps the processors busy until it is dropped.
struct Load(Vec<Child>);

impl Load {
    fn start(count: usize) -> Self {
        let burn = || {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            command.stdin(Stdio::null()).spawn().unwrap()
        };
        Self((0..count).map(|_| burn()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A check of a script in Python, under way.
struct Checking {
    dir: tempfile::TempDir,
    child: Child,
}

fn start(script: &str, flags: &[&str]) -> Checking {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("app.py");
    std::fs::write(&program, script).unwrap();
    let mut command = fdguard();
    command.args(["check", "--json", "-o"]);
    command.arg(dir.path().join("check.json")).args(flags);
    command.args(["--", "python3"]).arg(program).arg(dir.path());
    let child = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::null());
    let child = child.spawn().unwrap();
    Checking { dir, child }
}

impl Checking {
    fn end(self) -> (i32, Value) {
        let said = CommandOutput::of(self.child.wait_with_output().unwrap());
        let found = std::fs::read(self.dir.path().join("check.json"));
        let found = found.unwrap_or_else(|error| panic!("{error}: {}", said.stderr));
        (said.code, serde_json::from_slice(&found).unwrap())
    }
}

fn has_python() -> bool {
    let is_there = have("python3");
    if !is_there {
        skip("no python3");
    }
    is_there
}

/// Regression: the file of the second connection was never reported, so its unlock was ignored.
#[test]
fn r43_a_lock_that_two_connections_share_is_not_dropped_by_the_second() {
    if !has_python() {
        return;
    }
    let (code, found) = start(SHARED_LOCK, &[]).end();
    assert_eq!(found["hazards"], serde_json::json!([]), "{found:#}");
    assert_eq!(code, 0);
}

#[test]
fn r43_a_close_beside_sqlite_is_told_with_its_line_and_can_be_accepted() {
    if !has_python() {
        return;
    }
    let (code, found) = start(DROPPED_LOCK, &[]).end();
    assert_eq!(code, 1, "{found:#}");
    let hazard = &found["hazards"][0];
    assert_eq!(hazard["rule"], "lock-drop");
    assert_eq!(
        hazard["closer"]["culprit"]["function"], "checksum",
        "{found:#}"
    );
    let line = hazard["closer"]["culprit"]["line"].as_u64().unwrap();
    for allow in ["lock-drop".to_owned(), format!("app.py:{line}")] {
        let (code, found) = start(DROPPED_LOCK, &["--allow", &allow]).end();
        let hazards = found["hazards"].as_array().unwrap();
        assert_eq!((code, hazards.len()), (0, 1), "{found:#}");
        assert_eq!(hazards[0]["cleared"]["reason"], format!("--allow {allow}"));
        assert_eq!(found["check"]["passed"], true);
    }
}

/// Failed in 3 of 8 runs at once on two processors.
#[test]
fn r43_a_threaded_server_with_a_connection_for_each_request_passes_on_a_busy_machine() {
    if !has_python() {
        return;
    }
    let _load = Load::start(4);
    let checks: Vec<Checking> = (0..4).map(|_| start(SERVER, &[])).collect();
    for check in checks {
        let (code, found) = check.end();
        assert_eq!(found["hazards"], serde_json::json!([]), "{found:#}");
        assert_eq!(code, 0, "{found:#}");
    }
}
