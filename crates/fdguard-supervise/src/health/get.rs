//! One GET over one connection, as a state machine: no proxy, no redirect, no second request.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::dial::{Dial, Step, wording};
use super::response::{self, Progress, Response};
use super::spec::Page;
use crate::poll::{Interest, Readiness};

/// A page, ready to be requested.
#[derive(Debug)]
pub(super) struct PreparedRequest {
    page: Page,
    addresses: Arc<[SocketAddr]>,
    request: Vec<u8>,
}

impl PreparedRequest {
    pub(super) fn new(page: &Page) -> Result<Self, String> {
        let host = match page.url.target.port {
            80 => page
                .url
                .target
                .to_string()
                .trim_end_matches(":80")
                .to_owned(),
            _ => page.url.target.to_string(),
        };
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: fdguard/{}\r\nAccept: */*\r\nConnection: close\r\n\r\n",
            page.url.path,
            env!("CARGO_PKG_VERSION"),
        );
        Ok(Self {
            page: page.clone(),
            addresses: page.url.target.addresses()?.into(),
            request: request.into_bytes(),
        })
    }

    /// Whether the response is the expected one.
    fn judge(&self, response: &Response) -> Result<(), String> {
        if !self.page.status.contains(&response.status) {
            return Err(format!("status {}", response.status));
        }
        match &self.page.body {
            Some(pattern) if !pattern.0.is_match(&response.body) => Err(format!(
                "status {}, but the body does not match {:?}",
                response.status,
                pattern.0.as_str()
            )),
            _ => Ok(()),
        }
    }
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct Get {
    asked: Arc<PreparedRequest>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Dialing(Dial),
    Talking(Talk),
}

/// The request is sent first, then the response is received.
#[derive(Debug)]
struct Talk {
    socket: OwnedFd,
    sent: usize,
    bytes: Vec<u8>,
}

impl Get {
    pub(super) fn new(asked: &Arc<PreparedRequest>) -> Self {
        Self {
            asked: Arc::clone(asked),
            stage: Stage::Dialing(Dial::new(Arc::clone(&asked.addresses))),
        }
    }

    pub(super) fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        match &self.stage {
            Stage::Dialing(dial) => dial.wants(wants),
            Stage::Talking(talk) if talk.sent < self.asked.request.len() => {
                wants.write(talk.socket.as_fd())
            }
            Stage::Talking(talk) => wants.read(talk.socket.as_fd()),
        }
    }

    /// The current phase, for the reason of a timeout.
    pub(super) fn doing(&self) -> &'static str {
        match &self.stage {
            Stage::Dialing(dial) => dial.doing(),
            Stage::Talking(talk) if talk.sent < self.asked.request.len() => "request not accepted",
            Stage::Talking(talk) if talk.bytes.is_empty() => "connected, but no response",
            Stage::Talking(_) => "response not complete",
        }
    }

    pub(super) fn poll(&mut self, ready: &Readiness) -> Step<()> {
        if let Stage::Dialing(dial) = &mut self.stage {
            let connected = dial.poll(ready).and_then(|socket| {
                let bytes = Vec::new();
                Step::Done(Talk {
                    socket,
                    sent: 0,
                    bytes,
                })
            });
            match connected {
                Step::Done(talk) => self.stage = Stage::Talking(talk),
                other => return other.and_then(|_| Step::Waiting),
            }
        }
        let Stage::Talking(talk) = &mut self.stage else {
            return Step::Waiting;
        };
        let sent = talk.send(&self.asked.request);
        let answer = sent.and_then(|()| talk.read(self.asked.page.body.is_some()));
        answer.and_then(|response| match self.asked.judge(&response) {
            Ok(()) => Step::Done(()),
            Err(why) => Step::Failed(why),
        })
    }
}

impl Talk {
    fn send(&mut self, request: &[u8]) -> Step<()> {
        while self.sent < request.len() {
            match rustix::net::send(&self.socket, &request[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Step::Waiting,
                Err(Errno::INTR) => {}
                Err(why) => return Step::Failed(wording(why)),
            }
        }
        Step::Done(())
    }

    /// One poll reads at most as much as a probe may read in total: a fast sender cannot block the
    /// loop.
    fn read(&mut self, wants_body: bool) -> Step<Response> {
        let mut buffer = [0; 8 << 10];
        while self.bytes.len() < response::WIRE {
            let ended = match rustix::net::recv(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((count, _)) => {
                    self.bytes.extend_from_slice(&buffer[..count]);
                    count == 0
                }
                Err(Errno::AGAIN) => return Step::Waiting,
                Err(Errno::INTR) => continue,
                // Some servers close with a reset after their response: the received part counts.
                Err(Errno::CONNRESET) if !self.bytes.is_empty() => true,
                Err(why) => return Step::Failed(wording(why)),
            };
            match response::read(&self.bytes, ended, wants_body) {
                Progress::More => {}
                Progress::Bad(why) => return Step::Failed(why),
                Progress::Done(response) => return Step::Done(response),
            }
        }
        Step::Failed("the response is too long".to_owned())
    }
}
