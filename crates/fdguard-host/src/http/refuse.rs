//! Error responses without a request: for connections above the limit, and for request headers that
//! took too long.

use http::StatusCode;

use super::listen::Link;
use super::problem::{MEDIA_TYPE, Problem};

/// A whole response, after which the connection ends.
pub(super) fn text(problem: &Problem) -> Vec<u8> {
    // Text and numbers always can be written.
    let body = serde_json::to_vec(problem).unwrap_or_default();
    let status = problem.status();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

/// Refuses a connection. Nobody waits for its caller: what does not fit into the socket's buffer is not sent.
pub(super) fn now(link: Link, detail: &str) {
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "full", detail);
    let text = text(&problem);
    let mut ignored = [0; 4096];
    // What was sent already is taken: else the kernel would answer with a reset, which takes our words away from the caller.
    match link {
        Link::Tcp(stream) => {
            drop(stream.try_read(&mut ignored));
            drop(stream.try_write(&text));
        }
        Link::Unix(stream) => {
            drop(stream.try_read(&mut ignored));
            drop(stream.try_write(&text));
        }
    }
}
