//! Error responses without a request: for connections above the limit, and for request headers that
//! took too long.

use http::StatusCode;

use super::listen::ClientLink;
use super::problem::{MEDIA_TYPE, Problem};

/// A complete response, after which the connection is closed.
#[must_use]
pub fn text(problem: &Problem) -> Vec<u8> {
    // Text and numbers always can be written.
    let body = serde_json::to_vec(problem).unwrap_or_default();
    let status = problem.status();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

/// Refuses a connection without waiting for the client: what does not fit into the socket's buffer
/// is not sent.
pub fn now(link: ClientLink, detail: &str) {
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "full", detail);
    let text = text(&problem);
    let mut ignored = [0; 4096];
    // Received data is read first: otherwise the kernel sends a reset, and the client loses the
    // response.
    match link {
        ClientLink::Tcp(stream) => {
            drop(stream.try_read(&mut ignored));
            drop(stream.try_write(&text));
        }
        ClientLink::Unix(stream) => {
            drop(stream.try_read(&mut ignored));
            drop(stream.try_write(&text));
        }
    }
}
