//! The HTTP server: a few connections at a time, one request each, one deadline for the whole
//! exchange.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use fdguard_core::bearer::BearerToken;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt,
};

use super::request::{self, HEAD, Head};
use super::state::MetricsState;
use crate::poll::{Interest, Readiness};

/// Connections at a time. The oldest is closed for a new one, so that idle clients cannot block
/// others.
const CONNECTIONS: usize = 16;
/// The longest that a connection may last.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to stop accepting after the system refused a descriptor.
const PAUSE: Duration = Duration::from_secs(1);
/// How much is read from a caller that keeps sending after its request.
const REST: usize = 64 << 10;

/// A listening socket with its connections.
#[derive(Debug)]
pub struct MetricsServer {
    listener: OwnedFd,
    address: SocketAddr,
    token: Option<BearerToken>,
    connections: Vec<Connection>,
    pause: Option<Instant>,
}

impl MetricsServer {
    /// Listens there; port 0 is any free one.
    pub fn bind(address: SocketAddr, token: Option<BearerToken>) -> io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        rustix::net::bind(&listener, &address)?;
        rustix::net::listen(&listener, 64)?;
        let bound = rustix::net::getsockname(&listener)?;
        let bound = SocketAddr::try_from(bound).map_err(io::Error::from)?;
        Ok(Self {
            listener,
            address: bound,
            token,
            connections: Vec::new(),
            pause: None,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The current number of connections.
    #[must_use]
    pub fn connections_held(&self) -> usize {
        self.connections.len()
    }

    /// Registers its descriptors and deadline.
    pub fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        match self.pause {
            None => wants.read(self.listener.as_fd()),
            Some(until) => wants.until(until),
        }
        for connection in &self.connections {
            connection.wants(wants);
        }
    }

    /// Continues all connections without blocking. The state is built at most once, and only if a
    /// request needs it.
    pub fn poll(
        &mut self,
        now: Instant,
        ready: &Readiness,
        state: &mut dyn FnMut() -> MetricsState,
    ) {
        let mut known = None;
        let (token, address) = (self.token.as_ref(), self.address);
        let mut answer = |request: &request::Request<'_>| {
            if !request::is_for(request, address) {
                return request::misdirected();
            }
            let state = known.get_or_insert_with(&mut *state);
            request::answer(request, state, token)
        };
        self.connections.retain_mut(|one| {
            now < one.deadline && (!ready.has(&one.socket) || one.poll(&mut answer))
        });
        self.pause = self.pause.filter(|until| now < *until);
        if self.pause.is_none()
            && ready.has(&self.listener)
            && !accept(&self.listener, &mut self.connections, now, &mut answer)
        {
            self.pause = Some(now + PAUSE);
        }
    }
}

type Answer<'a> = dyn FnMut(&request::Request<'_>) -> Vec<u8> + 'a;

/// Accepts waiting connections, as many as fit; `false` if the system refuses a descriptor.
fn accept(
    listener: &OwnedFd,
    connections: &mut Vec<Connection>,
    now: Instant,
    answer: &mut Answer<'_>,
) -> bool {
    for _ in 0..CONNECTIONS {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match rustix::net::accept_with(listener, flags) {
            Ok(socket) => socket,
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            Err(why) => return why == Errno::AGAIN,
        };
        let mut new = Connection {
            socket,
            deadline: now + PATIENCE,
            stage: Stage::Reading(Vec::new()),
        };
        // Most requests are already complete.
        if !new.poll(answer) {
            continue;
        }
        if connections.len() >= CONNECTIONS {
            // The oldest is the first: they are in the order of arrival.
            connections.remove(0);
        }
        connections.push(new);
    }
    true
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    deadline: Instant,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Reading(Vec<u8>),
    Writing {
        answer: Vec<u8>,
        sent: usize,
    },
    /// The response is sent. Closing now would discard it if the caller is still sending, so wait
    /// for the caller's end.
    Leaving {
        left: usize,
    },
}

impl Connection {
    fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        wants.until(self.deadline);
        match self.stage {
            Stage::Writing { .. } => wants.write(self.socket.as_fd()),
            Stage::Reading(_) | Stage::Leaving { .. } => wants.read(self.socket.as_fd()),
        }
    }

    /// Continues as far as possible; `false` when it is over.
    fn poll(&mut self, answer: &mut Answer<'_>) -> bool {
        loop {
            let step = match &mut self.stage {
                Stage::Reading(_) => self.read(answer),
                Stage::Writing { .. } => self.write(),
                Stage::Leaving { .. } => self.leave(),
            };
            match step {
                Ok(Some(next)) => self.stage = next,
                Ok(None) | Err(Errno::INTR) => {}
                Err(why) => return why == Errno::AGAIN,
            }
        }
    }

    fn read(&mut self, answer: &mut Answer<'_>) -> Result<Option<Stage>, Errno> {
        let Stage::Reading(bytes) = &mut self.stage else {
            return Ok(None);
        };
        let mut buffer = [0; 2 << 10];
        let room = buffer.len().min(HEAD - bytes.len());
        let (count, _) = rustix::net::recv(&self.socket, &mut buffer[..room], RecvFlags::empty())?;
        if count == 0 {
            return Err(Errno::CONNRESET);
        }
        bytes.extend_from_slice(&buffer[..count]);
        let answer = match request::read(bytes) {
            Head::More => return Ok(None),
            Head::Whole(request) => answer(&request),
            bad => request::refuse(&bad),
        };
        Ok(Some(Stage::Writing { answer, sent: 0 }))
    }

    fn write(&mut self) -> Result<Option<Stage>, Errno> {
        let Stage::Writing { answer, sent } = &mut self.stage else {
            return Ok(None);
        };
        *sent += rustix::net::send(&self.socket, &answer[*sent..], SendFlags::NOSIGNAL)?;
        if *sent < answer.len() {
            return Ok(None);
        }
        rustix::net::shutdown(&self.socket, Shutdown::Write)?;
        Ok(Some(Stage::Leaving { left: REST }))
    }

    fn leave(&mut self) -> Result<Option<Stage>, Errno> {
        let Stage::Leaving { left } = &mut self.stage else {
            return Ok(None);
        };
        let (count, _) = rustix::net::recv(&self.socket, &mut [0; 4 << 10], RecvFlags::empty())?;
        *left = left.saturating_sub(count);
        if count == 0 || *left == 0 {
            return Err(Errno::CONNRESET);
        }
        Ok(None)
    }
}
