//! Clients without the token, and clients that do not read, take nothing from the others.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use super::http_harness::{ServedHost, TOKEN};

/// A client that stays attached: a connection that has shown the token.
fn attach(served: &ServedHost) -> TcpStream {
    let client = served.send("POST", "/v1/clients", "{\"lease_seconds\":600}");
    let id = client.json()["id"].as_str().unwrap().to_owned();
    let mut stream = served.connect();
    let request = served.request("GET", &format!("/v1/clients/{id}/attach"), "", "");
    stream.write_all(request.as_bytes()).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    stream
}

/// Whether the other side still holds a connection.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = [0; 1 << 16];
    let mut reader = stream;
    loop {
        match reader.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn callers_without_a_token_shut_nobody_out() {
    let served = ServedHost::with(|settings| settings.max_connections = 8);
    let attached = attach(&served);
    let mut held = Vec::new();
    for number in 0..64 {
        let mut stream = served.connect();
        let begin: &[u8] = match number % 3 {
            0 => b"",
            1 => b"GET /v1/health HT",
            _ => b"GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\n\r\n",
        };
        let _gone_already = stream.write_all(begin);
        held.push(stream);
        let answer = served.send("GET", "/v1/sessions", "");
        assert_eq!(answer.status, 200, "after {number}: {answer:?}");
    }
    assert!(is_open(&attached), "who has shown the token stays");
    let metrics = served.send("GET", "/metrics", "").body;
    let evicted = metrics
        .lines()
        .find_map(|line| line.strip_prefix("fdguard_host_http_connections_evicted_total "));
    assert!(evicted.unwrap().parse::<u64>().unwrap() >= 50, "{metrics}");
}

#[test]
fn a_volley_of_pipelined_requests_without_a_token_holds_up_nobody() {
    let served = ServedHost::with(|settings| settings.max_connections = 4);
    let volley = "GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(5000);
    let held: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = served.connect();
            stream.set_nonblocking(true).unwrap();
            // As much as fits; the answers are not read.
            let _full = stream.write(volley.as_bytes());
            stream
        })
        .collect();
    for _ in 0..8 {
        assert_eq!(served.send("GET", "/v1/sessions", "").status, 200);
    }
    drop(held);
}

#[test]
fn places_that_callers_with_the_token_hold_are_theirs() {
    let served = ServedHost::with(|settings| settings.max_connections = 3);
    // One more for the requests that make the clients.
    let held: Vec<TcpStream> = (0..2).map(|_| attach(&served)).collect();
    let mut third = served.connect();
    let keep = format!(
        "GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    );
    third.write_all(keep.as_bytes()).unwrap();
    let mut first = [0; 12];
    third.read_exact(&mut first).unwrap();
    let mut answer = String::new();
    let _reset = served.connect().read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(
        answer.contains("too many connections: 3 are open"),
        "{answer}"
    );
    assert!(held.iter().all(is_open) && is_open(&third));
    drop(third);
    served.eventually("room again", |_| {
        let request = served.request("GET", "/v1/health", "", "");
        served.raw(request.as_bytes()).starts_with("HTTP/1.1 200 ")
    });
}

#[test]
fn an_event_stream_that_nobody_reads_gives_its_place_back() {
    let served = ServedHost::with(|settings| {
        settings.max_requests = 1;
        settings.read_within = Duration::from_millis(300);
    });
    let id = served.bash();
    let body = json!({"code": "yes | head -c 100000000", "timeout_ms": 600_000}).to_string();
    let path = format!("/v1/sessions/{id}/exec");
    let mut stream = served.connect();
    let request = served.request("POST", &path, &body, "accept: text/event-stream\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let full = served.send("GET", "/v1/sessions", "");
    assert_eq!((full.status, full.code().as_str()), (429, "full"));
    served.eventually("its place is free", |_| {
        served.send("GET", "/v1/sessions", "").status == 200
    });
    served.eventually("its session is free", |host| {
        host.sessions().iter().all(|one| one.busy_ms.is_none())
    });
    let said = served.exec(&id, "echo here");
    assert_eq!(said["stdout"]["text"], "here\n", "{said}");
    drop(stream);
}

#[test]
fn connections_leave_the_last_tenth_of_the_table_alone() {
    let served = ServedHost::start();
    let used = served.host.health().fd_count.unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    let soft = (used + 60) * 100 / 90;
    let current = Some(soft);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let mut held = Vec::new();
    for number in 0..200 {
        let Ok(stream) = TcpStream::connect(served.address) else {
            break;
        };
        held.push(stream);
        // The test's own ends are in the same table: drop those that were closed.
        served.eventually("it is below the limit", |host| {
            held.retain(is_open);
            host.health().fd_count.unwrap() <= soft * 9 / 10 + 4
        });
        let answer = served.send("GET", "/v1/health", "");
        assert_eq!(answer.status, 200, "after {number}");
    }
    assert!(held.len() < 60, "{}", held.len());
}
