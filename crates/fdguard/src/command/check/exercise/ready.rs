//! Waits until a server is ready.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use crate::cli::ReadyArg;

/// How long one attempt may take, and the pause before the next.
const TRY: Duration = Duration::from_secs(2);
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// Without a readiness check: how long to wait for a listening socket.
pub(super) const LISTENS: Duration = Duration::from_secs(5);

/// Checks once. `ReadyArg::Line` is not polled: the output reader reports it.
pub(super) fn is_ready(how: &ReadyArg) -> bool {
    match how {
        ReadyArg::Tcp { host, port } => connect(host, *port).is_some(),
        ReadyArg::Http { host, port, path } => {
            answer(host, *port, path).is_some_and(|status| status < 500)
        }
        ReadyArg::Line(_) => false,
    }
}

pub(super) fn connect(host: &str, port: u16) -> Option<TcpStream> {
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().ok()?.collect();
    let mut streams = addresses
        .iter()
        .filter_map(|address| TcpStream::connect_timeout(address, TRY).ok());
    streams.next()
}

/// The status of the answer to a request.
fn answer(host: &str, port: u16, path: &str) -> Option<u16> {
    let mut stream = connect(host, port)?;
    stream.set_read_timeout(Some(TRY)).ok()?;
    stream.set_write_timeout(Some(TRY)).ok()?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: fdguard\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let (mut head, began) = (Vec::new(), Instant::now());
    let mut buffer = [0; 512];
    while !head.contains(&b'\n') && head.len() < 4096 && began.elapsed() < TRY {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => head.extend(buffer.get(..count)?),
            _ => break,
        }
    }
    status(&head)
}

/// `HTTP/1.1 200 OK`.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_whitespace();
    words.next().filter(|word| word.starts_with("HTTP/"))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn a_status_is_read_and_nonsense_is_none() {
        assert_eq!(status(b"HTTP/1.1 200 OK\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 503"), Some(503));
        assert_eq!(status(b"SSH-2.0-x\r\n"), None);
        assert_eq!(status(b""), None);
    }
}
