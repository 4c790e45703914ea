//! Requests to the metrics server and their responses. Pure.

use std::net::{IpAddr, SocketAddr};

use fdguard_core::bearer::BearerToken;
use fdguard_core::exposition;
use httparse::Status;

use super::state::MetricsState;
use super::{families, health};
use crate::http_head;

/// The longest head of a request.
pub(super) const HEAD: usize = 8 << 10;

/// A parsed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'h> {
    method: &'h str,
    path: &'h str,
    /// The value of `Authorization`.
    authorization: Option<&'h [u8]>,
    /// The value of `Host`.
    host: Option<&'h [u8]>,
}

/// How far parsing got.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head<'h> {
    /// The empty line is missing.
    More,
    /// A request.
    Whole(Request<'h>),
    /// Not a request, and more bytes will not make it one.
    Bad,
    /// Too long.
    Long,
}

/// Parses a request header. Bodies are ignored: neither GET nor HEAD has one.
pub(super) fn read(bytes: &[u8]) -> Head<'_> {
    let head = &bytes[..bytes.len().min(HEAD)];
    let mut fields = http_head::room(head);
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        // `httparse` skips empty lines before a request.
        _ if head.starts_with(b"\r") || head.starts_with(b"\n") => return Head::Bad,
        Ok(Status::Complete(_)) => {}
        Ok(Status::Partial) if head.len() == HEAD => return Head::Long,
        Ok(Status::Partial) => return Head::More,
        Err(_) => return Head::Bad,
    }
    let (Some(method), Some(path)) = (request.method, request.path) else {
        return Head::Bad;
    };
    if !path.starts_with('/') {
        return Head::Bad;
    }
    let (mut authorization, mut host) = (None, None);
    for field in request.headers {
        let known = match field.name {
            name if name.eq_ignore_ascii_case("authorization") => &mut authorization,
            name if name.eq_ignore_ascii_case("host") => &mut host,
            _ => continue,
        };
        // Different readers may interpret a duplicate differently.
        if known.replace(field.value).is_some() {
            return Head::Bad;
        }
    }
    Head::Whole(Request {
        method,
        path,
        authorization,
        host,
    })
}

/// Whether this request is meant for the server at this address. A foreign page in a local browser
/// can send requests to a loopback address under its own name, and that name is in `Host`. The
/// names of other addresses are unknown here.
pub(super) fn is_for(request: &Request<'_>, address: SocketAddr) -> bool {
    if !address.ip().is_loopback() {
        return true;
    }
    // Every browser sends it.
    let Some(host) = request.host else {
        return true;
    };
    let host = host.to_ascii_lowercase();
    let port = format!(":{}", address.port());
    let name = host.strip_suffix(port.as_bytes()).unwrap_or(&host);
    if name == b"localhost" {
        return true;
    }
    let name = name
        .strip_prefix(b"[")
        .and_then(|it| it.strip_suffix(b"]"))
        .unwrap_or(name);
    let ip = std::str::from_utf8(name)
        .ok()
        .and_then(|it| it.parse().ok());
    ip.is_some_and(|ip: IpAddr| ip.is_loopback())
}

/// The response to a request for another server.
pub(super) fn misdirected() -> Vec<u8> {
    let text = "wrong Host header: use localhost or 127.0.0.1\n";
    respond("421 Misdirected Request", PLAIN, text, true)
}

/// The whole response.
pub(super) fn answer(
    request: &Request<'_>,
    state: &MetricsState,
    token: Option<&BearerToken>,
) -> Vec<u8> {
    let with_body = match request.method {
        "GET" => true,
        "HEAD" => false,
        _ => {
            return respond(
                "405 Method Not Allowed",
                PLAIN,
                "method not allowed: use GET or HEAD\n",
                true,
            );
        }
    };
    let path = request.path.split('?').next();
    match path.unwrap_or_default() {
        "/metrics" => respond(
            "200 OK",
            exposition::CONTENT_TYPE,
            &families::write(state),
            with_body,
        ),
        "/health" | "/healthz" => {
            let is_known = token.is_some_and(|token| token.allows(request.authorization));
            let report = health::write(state, is_known);
            let status = if report.is_well {
                "200 OK"
            } else {
                "503 Service Unavailable"
            };
            respond(status, "application/json", &report.body, with_body)
        }
        "/" => respond("200 OK", PLAIN, "fdguard: /metrics, /health\n", with_body),
        _ => respond(
            "404 Not Found",
            PLAIN,
            "not found: use /metrics or /health\n",
            with_body,
        ),
    }
}

/// The response to an invalid request.
pub(super) fn refuse(head: &Head<'_>) -> Vec<u8> {
    match head {
        Head::Long => respond(
            "431 Request Header Fields Too Large",
            PLAIN,
            "the request header exceeds 8 KiB\n",
            true,
        ),
        _ => respond("400 Bad Request", PLAIN, "not an HTTP request\n", true),
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn respond(status: &str, kind: &str, body: &str, with_body: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    );
    let body = if with_body { body } else { "" };
    [head.as_bytes(), body.as_bytes()].concat()
}

/// Reads any bytes, for the fuzz target: a whole head stays the same, whatever follows.
#[cfg(feature = "fuzzing")]
pub fn fuzz_request(bytes: &[u8]) {
    let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
    let head = read(half);
    if let Head::Whole(request) = &head {
        assert!(request.path.starts_with('/'));
        let foreign = SocketAddr::from(([192, 0, 2, 1], 80));
        assert!(is_for(request, foreign));
        assert!(is_for(request, SocketAddr::from(([127, 0, 0, 1], 80))) || request.host.is_some());
        assert_eq!(read(bytes), head);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HEAD, Head, answer, is_for, read};
    use crate::metrics::state::MetricsState;

    fn status(request: &str) -> String {
        let Head::Whole(request) = read(request.as_bytes()) else {
            panic!("{request}")
        };
        let answer = String::from_utf8(answer(&request, &MetricsState::default(), None)).unwrap();
        answer.lines().next().unwrap().to_owned()
    }

    #[test]
    fn requests_are_answered_by_path_and_method() {
        assert_eq!(status("GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK");
        assert_eq!(status("GET /health?x HTTP/1.0\n\n"), "HTTP/1.1 200 OK");
        assert_eq!(
            status("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"),
            "HTTP/1.1 404 Not Found"
        );
        assert_eq!(
            status("POST /metrics HTTP/1.1\r\n\r\n"),
            "HTTP/1.1 405 Method Not Allowed"
        );
    }

    #[test]
    fn a_name_that_was_bent_to_a_loopback_address_is_not_ours() {
        let is_for = |host: &str, address: &str| {
            let text = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let Head::Whole(request) = read(text.as_bytes()) else {
                panic!("{text}")
            };
            is_for(&request, address.parse().unwrap())
        };
        let local = "127.0.0.1:9100";
        for ours in [
            "localhost:9100",
            "LOCALHOST",
            "127.0.0.1:9100",
            "127.0.0.1",
            "[::1]:9100",
        ] {
            assert!(is_for(ours, local), "{ours}");
        }
        for foreign in [
            "evil.example",
            "evil.example:9100",
            "localhost:9101",
            "127.0.0.1:+9100",
            "localhost.evil.example:9100",
            "10.0.0.1:9100",
            "",
        ] {
            assert!(!is_for(foreign, local), "{foreign}");
        }
        assert!(is_for("node.example:9100", "0.0.0.0:9100"));
        let two = b"GET / HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n\r\n";
        assert_eq!(read(two), Head::Bad);
    }

    #[test]
    fn head_has_the_length_and_no_body() {
        let Head::Whole(request) = read(b"HEAD / HTTP/1.1\r\n\r\n") else {
            panic!()
        };
        let answer = String::from_utf8(answer(&request, &MetricsState::default(), None)).unwrap();
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
        assert!(answer.contains("Content-Length: 27\r\n"), "{answer}");
    }

    #[test]
    fn what_is_no_request_is_told_apart() {
        assert_eq!(read(b"GET / HTTP/1.1\r\nHost: x\r\n"), Head::More);
        assert_eq!(read(b""), Head::More);
        for bad in [
            "\n\n",
            "GET /\n\n",
            "GET  / HTTP/1.1\n\n",
            "GET x HTTP/1.1\n\n",
            "G\0T / HTTP/1.1\n\n",
            "GET / HTTP/2\n\n",
        ] {
            assert_eq!(read(bad.as_bytes()), Head::Bad, "{bad:?}");
        }
        assert_eq!(read(&[b'a'; HEAD]), Head::Long);
        let fields = [b"GET / HTTP/1.1\n".as_slice(), &b"a:\n".repeat(HEAD / 3)].concat();
        assert_eq!(read(&fields[..HEAD]), Head::Long);
        assert_eq!(read(&fields[..HEAD / 2]), Head::More);
        let whole = [&fields[..15 + 3 * 999], b"\n"].concat();
        assert!(matches!(read(&whole), Head::Whole(_)), "a thousand fields");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            if let Head::Whole(request) = read(&bytes) {
                let _answer = answer(&request, &MetricsState::default(), None);
            }
        }
    }
}
