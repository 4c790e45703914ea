//! One nonblocking POST request.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use super::spec::DrainTarget;
use crate::health::response::{self, Progress};
use crate::poll::Interest;

/// The result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The drain is finished.
    Done,
    /// The drain has begun.
    Accepted,
    /// It was not received, or refused.
    Failed(String),
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct Hook {
    socket: OwnedFd,
    /// Other addresses of the same name.
    others: Vec<SocketAddr>,
    request: Vec<u8>,
    written: usize,
    answer: Vec<u8>,
}

impl Hook {
    pub(super) fn start(target: &DrainTarget) -> io::Result<Self> {
        let mut others = target.addresses.clone();
        others.reverse();
        let socket = connect_next(&mut others)?;
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: fdguard\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            target.path, target.host
        );
        Ok(Self {
            socket,
            others,
            request: request.into_bytes(),
            written: 0,
            answer: Vec::new(),
        })
    }

    pub(super) fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        if self.written < self.request.len() {
            wants.write(self.socket.as_fd());
        } else {
            wants.read(self.socket.as_fd());
        }
    }

    /// Continues as far as possible without blocking.
    pub(super) fn poll(&mut self) -> Option<Answer> {
        match self.advance() {
            Ok(answer) => answer,
            Err(Errno::AGAIN | Errno::NOTCONN | Errno::INTR) => None,
            // Nothing listens at this address: try the next one.
            Err(_) if self.written == 0 && !self.others.is_empty() => {
                match connect_next(&mut self.others) {
                    Ok(socket) => {
                        self.socket = socket;
                        None
                    }
                    Err(error) => Some(Answer::Failed(error.to_string())),
                }
            }
            Err(error) => Some(Answer::Failed(io::Error::from(error).to_string())),
        }
    }

    fn advance(&mut self) -> Result<Option<Answer>, Errno> {
        if self.written == 0 {
            rustix::net::sockopt::socket_error(&self.socket)??;
        }
        while self.written < self.request.len() {
            let rest = &self.request[self.written..];
            self.written += rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL)?;
        }
        loop {
            let mut buffer = [0; 512];
            let read = rustix::io::read(&self.socket, &mut buffer)?;
            self.answer.extend_from_slice(&buffer[..read]);
            let answer = judged(&self.answer, read == 0);
            if answer.is_some() {
                return Ok(answer);
            }
        }
    }
}

/// The result, once the head of the response is complete; its body does not matter.
fn judged(bytes: &[u8], has_ended: bool) -> Option<Answer> {
    match response::read(bytes, has_ended, false) {
        Progress::More => None,
        Progress::Bad(reason) => Some(Answer::Failed(reason)),
        Progress::Done(response) => Some(match response.status {
            202 => Answer::Accepted,
            200..=299 => Answer::Done,
            status => Answer::Failed(format!("it returned HTTP status {status}")),
        }),
    }
}

/// Connects to the last address of the list that can be tried.
fn connect_next(addresses: &mut Vec<SocketAddr>) -> io::Result<OwnedFd> {
    let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
    while let Some(address) = addresses.pop() {
        match connect(&address) {
            Ok(socket) => return Ok(socket),
            Err(error) => refused = error.into(),
        }
    }
    Err(refused)
}

fn connect(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, judged};

    #[test]
    fn the_status_decides() {
        let answer = |text: &str| judged(text.as_bytes(), false);
        assert_eq!(
            answer("HTTP/1.1 202 Accepted\r\n\r\n"),
            Some(Answer::Accepted)
        );
        assert_eq!(answer("HTTP/1.0 204\r\n\r\n"), Some(Answer::Done));
        let refusal = "it returned HTTP status 503".to_owned();
        assert_eq!(
            answer("HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\n"),
            Some(Answer::Failed(refusal))
        );
        // An informational response is not the final one.
        let both = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
        assert_eq!(answer(both), Some(Answer::Done));
    }

    #[test]
    fn an_incomplete_head_is_waited_for_until_the_end() {
        let head = b"HTTP/1.1 202 Accepted\r\nServer: x";
        assert_eq!(judged(head, false), None);
        assert!(matches!(judged(head, true), Some(Answer::Failed(_))));
        assert!(matches!(judged(b"", true), Some(Answer::Failed(_))));
        assert!(matches!(
            judged(b"SSH-2.0-x\r\n", false),
            Some(Answer::Failed(_))
        ));
    }
}
