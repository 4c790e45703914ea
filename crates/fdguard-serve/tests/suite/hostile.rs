//! Clients and processes that mean no good.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use testkit::Victim;

use super::harness::{Server, VIEW, leaker};

#[test]
fn ten_thousand_connections_do_not_keep_the_owner_out() {
    let server = Server::with(|options| options.web.max_connections = 32);
    let mut open = Vec::new();
    for _ in 0..10_000 {
        // Dropped ones are connections that went away; the newest stay open and silent.
        if let Ok(stream) = TcpStream::connect(server.address) {
            open.push(stream);
            if open.len() > 200 {
                open.remove(0);
            }
        }
    }
    let overview = server.json("/api/v1/overview");
    assert_eq!(overview["schema"], "fdguard.serve.overview/1");
    server.ticks(2);
}

#[test]
fn a_client_that_does_not_read_delays_nobody() {
    let server = Server::start();
    let mut idle = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let host = server.address;
        for _ in 0..64 {
            let sent = write!(
                stream,
                "GET /api/v1/overview HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {VIEW}\r\n\r\n"
            );
            if sent.is_err() {
                break;
            }
        }
        idle.push(stream);
        idle.push(server.events().into_inner());
    }
    server.ticks(5);
    assert_eq!(server.request("GET /healthz", None, "").0, 200);
    drop(idle);
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

#[test]
fn a_process_with_a_hostile_name_breaks_neither_metrics_nor_log() {
    let server = Server::start();
    let mut child = std::process::Command::new("sleep")
        .arg0("x\"}\n# TYPE evil\\{service=\"")
        .arg("60")
        .spawn()
        .unwrap();
    let name = "a\"b\\c\nd<script>";
    std::fs::write(format!("/proc/{}/comm", child.id()), name).unwrap_or_else(|error| {
        // Only a process may rename itself on some kernels.
        eprintln!("not renamed: {error}");
    });
    server.ticks(20);
    let text = server.request("GET /metrics", Some(VIEW), "").2;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().unwrap_or_default();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    let overview = server.json("/api/v1/overview");
    assert!(overview["services"].is_array());
    child.kill().unwrap();
    child.wait().unwrap();
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
