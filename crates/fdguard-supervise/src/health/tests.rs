//! Running checks, against servers that behave well and badly.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::{
    CheckInputs, CheckSpec, CommandContext, HealthChange, HealthCheck, HealthState, Listener,
};
use crate::poll::{Interest, Readiness};

fn check(text: &str) -> HealthCheck {
    let spec: CheckSpec = text.parse().unwrap();
    let scene = CommandContext {
        environment: std::env::vars_os().collect(),
        dir: None,
    };
    HealthCheck::new(&spec, &Arc::new(scene)).unwrap()
}

pub(super) fn step(check: &mut HealthCheck, feeds: &CheckInputs<'_>) -> Option<HealthChange> {
    let mut wants = Interest::default();
    check.wants(&mut wants);
    let ready = wants.wait().unwrap();
    check.poll(Instant::now(), &ready, feeds)
}

pub(super) fn next(check: &mut HealthCheck) -> HealthChange {
    loop {
        if let Some(change) = step(check, &CheckInputs::default()) {
            return change;
        }
    }
}

fn first(text: &str) -> HealthChange {
    let mut check = check(text);
    check.start(Instant::now()).unwrap();
    next(&mut check)
}

pub(super) fn reason(change: HealthChange) -> String {
    match change {
        HealthChange::Failing { reason, .. } => reason,
        HealthChange::Healthy => panic!("healthy"),
    }
}

/// A server that handles each connection like this, for as long as the test runs.
fn server(each: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().flatten().for_each(each));
    port
}

fn answering(answer: &'static str) -> u16 {
    server(move |mut stream| {
        let mut request = [0; 4096];
        let count = stream.read(&mut request).unwrap_or(0);
        if count == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&request[..count]);
        assert!(
            text.starts_with("GET /h?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"),
            "{text}"
        );
        assert!(text.contains("Connection: close"), "{text}");
        let _sent = stream.write_all(answer.as_bytes());
    })
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

pub(super) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

const FAST: &str = "period=10ms timeout=20s failure=1";

#[test]
fn r30_a_port_that_answers_is_healthy_and_one_that_does_not_is_failing() {
    let port = server(drop);
    assert_eq!(
        first(&format!("tcp:127.0.0.1:{port} {FAST}")),
        HealthChange::Healthy
    );
    assert_eq!(first(&format!("tcp:{port} {FAST}")), HealthChange::Healthy);
    let free = free_port();
    let why = reason(first(&format!("tcp:127.0.0.1:{free} {FAST}")));
    assert_eq!(why, format!("127.0.0.1:{free}: connection refused"));
}

#[test]
fn a_service_that_fails_later_and_comes_back_is_told_twice() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut check = check(&format!(
        "tcp:127.0.0.1:{port} period=10ms timeout=20s failure=3"
    ));
    check.start(Instant::now()).unwrap();
    assert_eq!(next(&mut check), HealthChange::Healthy);
    drop(listener);
    let HealthChange::Failing { failures, .. } = next(&mut check) else {
        panic!()
    };
    assert_eq!((failures, check.state()), (3, HealthState::Failing));
    let _again = TcpListener::bind(("127.0.0.1", port)).unwrap();
    assert_eq!(next(&mut check), HealthChange::Healthy);
}

#[test]
fn pages_are_judged_by_status_and_body() {
    let ok = answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nall \r\n4\r\nwell\r\n0\r\n\r\n",
    );
    let page =
        |port: u16, more: &str| first(&format!("http://127.0.0.1:{port}/h?x=1 {FAST} {more}"));
    assert_eq!(page(ok, ""), HealthChange::Healthy);
    assert_eq!(page(ok, "body=^all well$"), HealthChange::Healthy);
    let why = reason(page(ok, "body=degraded"));
    assert_eq!(why, "status 200, but the body does not match \"degraded\"");
    let busy = answering("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(reason(page(busy, "")), "status 503");
    assert_eq!(page(busy, "status=500-599"), HealthChange::Healthy);
    let moved = answering("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n");
    assert_eq!(page(moved, ""), HealthChange::Healthy);
    let other = answering("220 mail.example ESMTP\r\n");
    assert_eq!(reason(page(other, "")), "the response is not HTTP");
    let silent = answering("");
    assert_eq!(
        reason(page(silent, "")),
        "connection closed without a response"
    );
}

#[test]
fn proxies_of_the_environment_are_not_used() {
    let ok = answering("HTTP/1.1 200 OK\r\n\r\n");
    let spec: CheckSpec = format!("http://127.0.0.1:{ok}/h?x=1 {FAST}")
        .parse()
        .unwrap();
    let proxy = ("http_proxy".into(), "http://127.0.0.1:1".into());
    let scene = CommandContext {
        environment: vec![proxy],
        dir: None,
    };
    let mut check = HealthCheck::new(&spec, &Arc::new(scene)).unwrap();
    check.start(Instant::now()).unwrap();
    assert_eq!(next(&mut check), HealthChange::Healthy);
}

#[test]
fn a_server_that_never_answers_is_given_up_at_the_deadline() {
    let (hold, held) = std::sync::mpsc::channel();
    let port = server(move |stream| hold.send(stream).unwrap());
    let before = Instant::now();
    let why = reason(first(&format!(
        "http://127.0.0.1:{port}/ period=10ms timeout=200ms failure=1"
    )));
    assert_eq!(why, "connected, but no response within 200ms");
    assert!(before.elapsed() >= Duration::from_millis(200));
    drop(held);
}

#[test]
fn a_server_that_drips_is_given_up_at_the_deadline() {
    let port = server(|mut stream| {
        let _sent = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"x").is_ok() {
            thread::yield_now();
        }
    });
    let why = reason(first(&format!(
        "http://127.0.0.1:{port}/ period=10ms timeout=300ms failure=1"
    )));
    let expected = [
        "response not complete within 300ms",
        "the response header is too long",
    ];
    assert!(expected.contains(&why.as_str()), "{why}");
}

#[test]
fn r30_probes_leave_no_descriptor_whatever_their_outcome() {
    let free = free_port();
    let well = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let reset = server(|stream| {
        let _bytes = stream.peek(&mut [0; 1]);
    });
    let quiet = TcpListener::bind("127.0.0.1:0").unwrap();
    let quiet_port = quiet.local_addr().unwrap().port();
    let checks = [
        format!("tcp:127.0.0.1:{well} period=10ms timeout=20s"),
        format!("tcp:127.0.0.1:{free} period=10ms timeout=20s"),
        format!("http://127.0.0.1:{well}/h?x=1 period=10ms timeout=20s body=ok"),
        format!("http://127.0.0.1:{reset}/ period=10ms timeout=20s"),
        format!("http://127.0.0.1:{quiet_port}/ period=10ms timeout=15ms"),
        format!("http://127.0.0.1:{free}/ period=10ms timeout=20s"),
    ];
    for text in checks {
        let before = descriptors();
        let mut check = check(&text);
        check.start(Instant::now()).unwrap();
        let mut clock = Instant::now();
        let mut turns = 0;
        // The test controls the clock: it does not wait for probes.
        while turns < 600 {
            let mut wants = Interest::default();
            check.wants(&mut wants);
            wants.until(Instant::now() + Duration::from_millis(1));
            let ready = wants.wait().unwrap();
            check.poll(clock, &ready, &CheckInputs::default());
            clock += Duration::from_millis(5);
            turns += 1;
        }
        check.end();
        drop(check);
        // The servers' threads may still hold their ends.
        let ours = || descriptors() <= before;
        let patience = Instant::now() + Duration::from_secs(20);
        while !ours() && Instant::now() < patience {
            thread::yield_now();
        }
        assert!(
            ours(),
            "{text}: {} descriptors, {before} before",
            descriptors()
        );
    }
}

#[test]
fn a_check_that_is_dropped_in_flight_leaves_nothing() {
    let quiet = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = quiet.local_addr().unwrap().port();
    let before = descriptors();
    for text in [
        format!("http://127.0.0.1:{port}/"),
        format!("tcp:127.0.0.1:{port}"),
        "fd:3".to_owned(),
    ] {
        let mut check = check(&text);
        let pipe = check.start(Instant::now()).unwrap();
        check.poll(
            Instant::now(),
            &Readiness::default(),
            &CheckInputs::default(),
        );
        assert!(descriptors() > before, "{text}");
        drop((check, pipe));
        assert_eq!(descriptors(), before, "{text}");
    }
}

#[test]
fn a_newline_on_its_descriptor_makes_a_service_ready() {
    let mut check = check("fd:4");
    let pipe = check.start(Instant::now()).unwrap().unwrap();
    assert_eq!(pipe.number, 4);
    let mut theirs = std::fs::File::from(pipe.fd);
    theirs.write_all(b"almost").unwrap();
    assert_eq!(step(&mut check, &CheckInputs::default()), None);
    theirs.write_all(b"\n").unwrap();
    assert_eq!(next(&mut check), HealthChange::Healthy);
    // A second start is a second pipe.
    let again = check.start(Instant::now()).unwrap().unwrap();
    assert_eq!(check.state(), HealthState::Unknown);
    drop(again);
    assert_eq!(
        step(&mut check, &CheckInputs::default()),
        None,
        "closed without a newline"
    );
    assert_eq!(check.state(), HealthState::Unknown);
}

#[test]
fn a_line_a_notification_and_time_make_a_service_ready_once() {
    let now = Instant::now();
    let ready = Readiness::default();
    let none = CheckInputs::default();

    let mut line = check("line:listening on .*:\\d+$");
    line.hear(b"listening on :1");
    line.start(now).unwrap();
    assert_eq!(
        line.poll(now, &ready, &none),
        None,
        "it was said before the start"
    );
    line.hear(b"starting \xff");
    assert_eq!(line.poll(now, &ready, &none), None);
    line.hear(b"listening on 0.0.0.0:80");
    assert_eq!(line.poll(now, &ready, &none), Some(HealthChange::Healthy));
    assert_eq!(line.poll(now, &ready, &none), None);
    line.start(now).unwrap();
    assert_eq!(line.poll(now, &ready, &none), None);

    let mut notify = check("notify");
    notify.start(now).unwrap();
    let told = CheckInputs {
        notified: true,
        ..none
    };
    assert_eq!(notify.poll(now, &ready, &none), None);
    assert_eq!(notify.poll(now, &ready, &told), Some(HealthChange::Healthy));

    let mut up = check("up:5s");
    up.start(now).unwrap();
    assert_eq!(
        up.poll(now + Duration::from_millis(4999), &ready, &none),
        None
    );
    assert_eq!(
        up.poll(now + Duration::from_secs(5), &ready, &none),
        Some(HealthChange::Healthy)
    );
}

#[test]
fn a_server_that_accepts_nothing_fails_its_accept_check() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let listeners = [Listener {
        ino: rustix::fs::fstat(&server).unwrap().st_ino,
        address,
    }];
    let feeds = CheckInputs {
        listeners: &listeners,
        ..CheckInputs::default()
    };
    let mut check = check("accept");
    let mut now = Instant::now();
    check.start(now).unwrap();
    let mut look = || {
        now += Duration::from_secs(10);
        check.poll(now, &Readiness::default(), &feeds)
    };
    assert_eq!(look(), Some(HealthChange::Healthy));
    let _client = TcpStream::connect(address).unwrap();
    assert_eq!((look(), look(), look()), (None, None, None));
    let why = reason(look().unwrap());
    assert!(
        why.starts_with("accepts no connections: 1 connection is waiting"),
        "{why}"
    );
    let _taken = server.accept().unwrap();
    assert_eq!(look(), Some(HealthChange::Healthy));
}

#[test]
fn an_accept_check_without_a_socket_says_nothing() {
    let mut check = check("accept");
    let now = Instant::now();
    check.start(now).unwrap();
    for second in 0..60 {
        let now = now + Duration::from_secs(second);
        let change = check.poll(now, &Readiness::default(), &CheckInputs::default());
        assert_eq!((change, check.state()), (None, HealthState::Unknown));
    }
    assert_eq!(
        check.blind(),
        Some("the service has no known listening socket")
    );
}
