//! Clients and processes that mean no good.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::Victim;

use super::harness::{Server, VIEW, leaker, leaker_named};

/// Connects to `argv[1]:argv[2]` as often as `argv[3]` says, and holds every connection. Says
/// how many there are, and ends with its input.
const HOLD: &str = r#"
import resource, socket, sys
want = int(sys.argv[3])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
need = want + 100
try:
    if soft != resource.RLIM_INFINITY and soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, max(hard, need) if hard != -1 else hard))
except (OSError, ValueError) as error:
    print("LIMIT", hard, error, flush=True)
    sys.exit()
held = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(want)]
print("HELD", len(held), flush=True)
sys.stdin.read()
"#;

/// Connections that take in next to nothing, each with many requests; nothing is ever read.
const DEAF: &str = r#"
import socket, sys
request = ("GET /api/v1/overview HTTP/1.1\r\nHost: %s:%s\r\nAuthorization: Bearer %s\r\n\r\n"
           % (sys.argv[1], sys.argv[2], sys.argv[4])).encode()
held = []
for _ in range(int(sys.argv[3])):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    one.connect((sys.argv[1], int(sys.argv[2])))
    one.setblocking(False)
    try:
        for _ in range(2000):
            one.send(request)
    except BlockingIOError:
        pass
    held.append(one)
print("HELD", len(held), flush=True)
sys.stdin.read()
"#;

/// A Python program with connections to a server, in a process of its own. Drop ends it.
struct Holder(Child);

impl Holder {
    /// Starts it and returns its line.
    fn start(script: &str, server: &Server, count: usize) -> (Self, String) {
        let address = server.address;
        let mut child = Command::new("python3")
            .args(["-c", script, &address.ip().to_string()])
            .args([address.port().to_string(), count.to_string()])
            .arg(VIEW)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        (Self(child), line.trim().to_owned())
    }

    /// Its sockets, as the kernel lists them.
    fn sockets(&self) -> usize {
        let dir = format!("/proc/{}/fd", self.0.id());
        let entries = std::fs::read_dir(dir).unwrap().flatten();
        let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let names = links.map(|to| to.to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("socket:[")).count()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn own_fds(overview: &Value) -> u64 {
    overview["own"]["open_fds"].as_u64().unwrap()
}

#[test]
fn ten_thousand_connections_do_not_keep_the_owner_out() {
    const MANY: usize = 10_000;
    let server = Server::with(|options| options.web.max_connections = 32);
    let (holder, line) = Holder::start(HOLD, &server, MANY);
    if line.starts_with("LIMIT") {
        return testkit::skip("the hard limit forbids 10,000 connections of one process");
    }
    assert_eq!(line, format!("HELD {MANY}"));
    assert_eq!(holder.sockets(), MANY);
    let overview = server.json("/api/v1/overview");
    assert_eq!(overview["schema"], "fdguard.serve.overview/1");
    server.ticks(2);
    // All of them at once, and the server has no more open than it was told.
    let own = own_fds(&server.json("/api/v1/overview"));
    assert!(own < 1000, "{own}");
    assert_eq!(holder.sockets(), MANY);
}

#[test]
fn a_client_that_does_not_read_delays_nobody_and_loses_its_connection() {
    const DEAF_CLIENTS: u64 = 64;
    let server = Server::with(|options| options.web.max_connections = 256);
    server.ticks(5);
    let before = own_fds(&server.json("/api/v1/overview"));
    let (holder, line) = Holder::start(DEAF, &server, 64);
    assert_eq!(line, "HELD 64");
    let events: Vec<_> = (0..8).map(|_| server.events().into_inner()).collect();
    // A few processes of this machine may be watched or not any more.
    let some = DEAF_CLIENTS / 2;
    server.wait("the connections", |overview| {
        (own_fds(overview) >= before + some).then_some(())
    });
    server.ticks(5);
    assert_eq!(server.request("GET /healthz", None, "").0, 200);
    drop(events);
    // They are hung up on, although they are still there.
    server.wait("their end", |overview| {
        (own_fds(overview) < before + some).then_some(())
    });
    assert_eq!(holder.sockets(), 64);
}

#[test]
fn garbage_is_refused_and_the_server_goes_on() {
    let server = Server::start();
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /api/v1/overview HTTP/1.1\r\n\r\n",
        b"\r\n\r\n\r\n",
        &[0xff; 4096],
    ] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        // It may hang up while this is sent.
        drop(stream.write_all(garbage));
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{garbage:?}");
    }
    assert_eq!(server.request("GET /healthz", None, "").0, 200);
}

/// A name that means something to the metrics, to the log and to a page.
fn hostile_name() -> String {
    format!("\"\\\n}}<{}", std::process::id())
}

#[test]
fn a_process_with_a_hostile_name_breaks_neither_metrics_nor_log() {
    let server = Server::start();
    let name = hostile_name();
    assert!(name.len() <= 15, "the kernel would shorten it");
    let mut victim = leaker_named(&name).nofile(60).start();
    victim.tell("54 file");
    let pid = victim.pid();
    let found = server.wait("the finding", |overview| {
        let all = overview["findings"].as_array()?;
        all.iter().find(|one| one["finding"]["pid"] == pid).cloned()
    });
    assert_eq!(found["service"]["name"], name, "as it is, in JSON");
    let text = server.request("GET /metrics", Some(VIEW), "").2;
    let id = std::process::id();
    let label = format!(r#"service="\"\\\n}}<{id}",kind="command""#);
    for metric in [
        "fdguard_open_fds",
        "fdguard_findings",
        "fdguard_process_open_fds",
    ] {
        let begin = format!("{metric}{{{label}");
        assert!(text.contains(&begin), "{begin} is missing in\n{text}");
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().unwrap_or_default();
        assert!(line.starts_with("fdguard_"), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    let log = server.log();
    let about = format!(" pid={pid} ");
    let opened = log.iter().find(|line| line.contains(&about)).unwrap();
    let quoted = format!(r#"event=finding_opened service="\"\\\n}}<{id}" kind=command "#);
    assert!(opened.contains(&quoted), "{opened}");
    for line in &log {
        assert!(line.starts_with("fdguard_event event="), "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    victim.finish();
}

#[test]
fn a_burst_of_processes_does_not_stop_the_ticks() {
    let server = Server::with(|options| options.budget = 0.01);
    server.ticks(2);
    let victims: Vec<Victim> = (0..30).map(|_| leaker().start()).collect();
    let begin = Instant::now();
    server.ticks(10);
    assert!(begin.elapsed() < Duration::from_secs(60));
    for victim in victims {
        victim.finish();
    }
}
