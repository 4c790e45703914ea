//! Tests of the server with well-behaved and hostile callers.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{BearerToken, MetricsServer, MetricsState, ServiceMetrics};
use crate::poll::Interest;

fn server() -> MetricsServer {
    let token = BearerToken::new(b"0123456789abcdef").unwrap();
    MetricsServer::bind("127.0.0.1:0".parse().unwrap(), Some(token)).unwrap()
}

fn state() -> MetricsState {
    MetricsState {
        services: vec![ServiceMetrics {
            name: "web".into(),
            ..ServiceMetrics::default()
        }],
        ..MetricsState::default()
    }
}

/// Serves with the clock shifted by this much until the task is finished.
fn serve<T: Send + 'static>(
    server: &mut MetricsServer,
    ahead: Duration,
    task: impl FnOnce(SocketAddr) -> T + Send + 'static,
) -> T {
    let address = server.address();
    let task = thread::spawn(move || task(address));
    while !task.is_finished() {
        let mut wants = Interest::default();
        server.wants(&mut wants);
        wants.until(Instant::now() + Duration::from_millis(2));
        let ready = wants.wait().unwrap();
        server.poll(Instant::now() + ahead, &ready, &mut state);
    }
    task.join().unwrap()
}

fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn pages_are_served_and_the_token_shows_names() {
    let mut server = server();
    let answers = serve(&mut server, Duration::ZERO, |address| {
        [
            ask(address, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            ask(address, b"GET /health HTTP/1.1\r\n\r\n"),
            ask(
                address,
                b"GET /health HTTP/1.1\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n",
            ),
            ask(address, b"HEAD /metrics HTTP/1.0\r\n\r\n"),
            ask(address, b"nonsense\r\n\r\n"),
        ]
    });
    let [metrics, health, known, head, bad] = &answers;
    assert!(
        metrics.starts_with("HTTP/1.1 200 OK\r\n")
            && metrics.contains("fdguard_service_up{service=\"web\"} 0\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{metrics}"
    );
    assert!(
        health.starts_with("HTTP/1.1 503 ") && !health.contains("web"),
        "{health}"
    );
    assert!(known.contains("\"name\":\"web\""), "{known}");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    assert!(bad.starts_with("HTTP/1.1 400 "), "{bad}");
}

#[test]
fn a_request_that_comes_in_pieces_is_answered() {
    let mut server = server();
    let answer = serve(&mut server, Duration::ZERO, |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        for byte in b"GET /metrics HTTP/1.1\r\nX: y\r\n\r\n" {
            stream.write_all(&[*byte]).unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[test]
fn silent_callers_keep_nobody_out() {
    let mut server = server();
    let before = descriptors();
    let silent = serve(&mut server, Duration::ZERO, |address| {
        let silent: Vec<_> = (0..40)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let answer = ask(address, b"GET / HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        silent
    });
    assert!(server.connections_held() <= 16);
    // After the deadline all of them are closed, although none sent a byte.
    serve(&mut server, Duration::from_secs(6), |address| {
        ask(address, b"GET / HTTP/1.1\r\n\r\n");
    });
    serve(&mut server, Duration::from_secs(12), |_| ());
    drop(silent);
    let patience = Instant::now() + Duration::from_secs(20);
    while server.connections_held() > 0 && Instant::now() < patience {
        serve(&mut server, Duration::from_secs(12), |_| ());
    }
    assert_eq!((server.connections_held(), descriptors()), (0, before));
}

#[test]
fn a_head_without_end_is_refused_and_an_answer_that_nobody_reads_is_dropped() {
    let mut server = server();
    let answer = serve(&mut server, Duration::ZERO, |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&vec![b'a'; 20_000]).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[test]
fn the_port_of_another_is_an_error() {
    let taken = server();
    let error = MetricsServer::bind(taken.address(), None).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_bytes_are_survived_without_a_leak(callers in proptest::collection::vec((any::<Vec<u8>>(), any::<bool>(), any::<bool>()), 0..20)) {
        let before = descriptors();
        let mut server = server();
        serve(&mut server, Duration::ZERO, move |address| {
            let mut open = Vec::new();
            for (bytes, as_request, shut) in callers {
                let mut stream = TcpStream::connect(address).unwrap();
                let start: &[u8] = if as_request { b"GET /metrics HTTP/1.1\r\n" } else { b"" };
                // The server may have already closed, which is allowed.
                let _sent = stream.write_all(&[start, &bytes, b"\r\n\r\n"].concat());
                if shut {
                    let _shut = stream.shutdown(Shutdown::Both);
                }
                open.push(stream);
            }
        });
        prop_assert!(server.connections_held() <= 16);
        drop(server);
        prop_assert_eq!(descriptors(), before);
    }
}
