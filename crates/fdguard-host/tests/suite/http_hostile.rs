//! Clients that send nonsense, too much, too slowly or too often: the server refuses and stays up.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use super::http_harness::{ServedHost, TOKEN, read_answer};

fn is_alive(served: &ServedHost) {
    let health = served.send("GET", "/v1/health", "");
    assert_eq!(health.status, 200, "{health:?}");
}

#[test]
fn garbage_is_refused_and_the_next_caller_is_served() {
    let served = ServedHost::start();
    for (garbage, status) in [
        (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], "400"),
        (b"\0\0\0\0\r\n\r\n", "400"),
        (b"GET\r\n\r\n", "400"),
        (b"GET / HTTP/9.9\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nhost localhost\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\n", "400"),
        // Nobody without a token is read further than the head.
        (b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "401"),
    ] {
        let answer = served.raw_and_gone(garbage);
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{garbage:?}: {answer}");
        is_alive(&served);
    }
    assert!(served.stop().is_empty());
}

#[test]
fn a_thousand_headers_and_a_long_one_are_431() {
    let served = ServedHost::start();
    let many: String = (0..1000).map(|n| format!("x-{n}: 1\r\n")).collect();
    let long = format!("x: {}\r\n", "y".repeat(100_000));
    for more in [many, long] {
        let answer = served
            .raw(format!("GET /v1/health HTTP/1.1\r\nhost: localhost\r\n{more}\r\n").as_bytes());
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431 "),
            "{answer}"
        );
        is_alive(&served);
    }
}

#[test]
fn half_a_head_then_silence_is_408_in_time() {
    let served = ServedHost::with(|settings| settings.head_within = Duration::from_millis(300));
    let begun = Instant::now();
    let mut stream = served.connect();
    stream.write_all(b"GET /v1/health HTTP/1.1\r\nho").unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 408 "), "{all}");
    assert!(all.contains("\"code\":\"too-slow\""), "{all}");
    assert!(begun.elapsed() >= Duration::from_millis(250), "too early");
    // A silent client is disconnected, too; a client whose request was answered may wait longer
    // before the next.
    let mut silent = served.connect();
    let mut patient = served.connect();
    let ask = format!(
        "GET /v1/health HTTP/1.1\r\nhost: {}\r\n\r\n",
        served.address
    );
    let mut answer = [0; 12];
    patient.write_all(ask.as_bytes()).unwrap();
    patient.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let mut nothing = Vec::new();
    silent.read_to_end(&mut nothing).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    patient
        .write_all(
            ask.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")
                .as_bytes(),
        )
        .unwrap();
    let mut rest = String::new();
    patient.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains("HTTP/1.1 200 "),
        "the kept connection was closed: {rest}"
    );
}

#[test]
fn a_huge_body_is_413_before_it_is_read() {
    let served = ServedHost::with(|settings| settings.max_body = 1000);
    let announced = format!(
        "POST /v1/clients HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\ncontent-length: 100000000000\r\nconnection: close\r\n\r\n"
    );
    let mut stream = served.connect();
    stream.write_all(announced.as_bytes()).unwrap();
    assert_eq!(read_answer(stream).code(), "too-large");
    let body = format!("{{\"name\":\"{}\"}}", "x".repeat(2000));
    let whole = served.send("POST", "/v1/clients", &body);
    assert_eq!((whole.status, whole.code().as_str()), (413, "too-large"));
    let chunked = format!(
        "POST /v1/clients HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n7d0\r\n{}\r\n0\r\n\r\n",
        "x".repeat(2000)
    );
    assert!(served.raw(chunked.as_bytes()).starts_with("HTTP/1.1 413 "));
    is_alive(&served);
}

#[test]
fn requests_beyond_the_cap_are_refused_in_words() {
    let served = ServedHost::with(|settings| settings.max_requests = 1);
    let id = served.send("POST", "/v1/clients", "{}").json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut attached = served.connect();
    let request = served.request("GET", &format!("/v1/clients/{id}/attach"), "", "");
    attached.write_all(request.as_bytes()).unwrap();
    let mut first = [0; 12];
    attached.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let full = served.send("GET", "/v1/sessions", "");
    assert_eq!((full.status, full.code().as_str()), (429, "full"));
    is_alive(&served);
}
