//! A nonblocking connect that tries one address after the other.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::poll::{Interest, Readiness};

/// The result of a step.
#[derive(Debug)]
pub(super) enum Step<T> {
    /// It is waiting for an event.
    Waiting,
    /// It is done.
    Done(T),
    /// It failed, for this reason.
    Failed(String),
    /// The probe could not run, for this reason: it does not count for the service.
    Blind(String),
}

impl<T> Step<T> {
    /// The same with another result.
    pub(super) fn and_then<U>(self, next: impl FnOnce(T) -> Step<U>) -> Step<U> {
        match self {
            Self::Done(value) => next(value),
            Self::Waiting => Step::Waiting,
            Self::Failed(why) => Step::Failed(why),
            Self::Blind(why) => Step::Blind(why),
        }
    }
}

/// A connection in progress.
#[derive(Debug)]
pub(super) struct Dial {
    addresses: Arc<[SocketAddr]>,
    next: usize,
    socket: Option<OwnedFd>,
    reason: String,
}

impl Dial {
    /// Nothing happens before the first poll.
    pub(super) fn new(addresses: Arc<[SocketAddr]>) -> Self {
        Self {
            addresses,
            next: 0,
            socket: None,
            reason: "no address".to_owned(),
        }
    }

    pub(super) fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        if let Some(socket) = &self.socket {
            wants.write(socket.as_fd());
        }
    }

    /// The current phase, for the reason of a timeout.
    pub(super) fn doing(&self) -> &'static str {
        "no connection"
    }

    pub(super) fn poll(&mut self, ready: &Readiness) -> Step<OwnedFd> {
        if let Some(socket) = self.socket.take() {
            if !ready.has(&socket) {
                self.socket = Some(socket);
                return Step::Waiting;
            }
            match finished(&socket) {
                Ok(true) => return Step::Done(socket),
                Ok(false) => {
                    self.socket = Some(socket);
                    return Step::Waiting;
                }
                Err(reason) => self.note(&reason),
            }
        }
        self.start()
    }

    /// Starts with the next address that does not fail at once.
    fn start(&mut self) -> Step<OwnedFd> {
        while let Some(address) = self.addresses.get(self.next).copied() {
            self.next += 1;
            match open(address) {
                Ok(socket) => {
                    self.socket = Some(socket);
                    return Step::Waiting;
                }
                Err(why) if is_ours(why) => return Step::Blind(wording(why)),
                Err(why) => self.note(&wording(why)),
            }
        }
        Step::Failed(std::mem::take(&mut self.reason))
    }

    /// The first address is the one that users mean: report its reason.
    fn note(&mut self, reason: &str) {
        if self.next == 1 {
            let address = self.addresses.first().map(ToString::to_string);
            self.reason = format!("{}: {reason}", address.unwrap_or_default());
        }
    }
}

/// A connecting socket. One that connects at once is writable at once.
fn open(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR | Errno::AGAIN) => Ok(socket),
        Err(why) => Err(why),
    }
}

/// Whether the connection is established. A local port without a listener can connect to itself:
/// the kernel may choose it as the local end, too, and the probe would succeed against itself.
fn finished(socket: &OwnedFd) -> Result<bool, String> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => {}
        Ok(Err(why)) | Err(why) => return Err(wording(why)),
    }
    let near = rustix::net::getsockname(socket).map_err(wording)?;
    let far = match rustix::net::getpeername(socket) {
        Ok(far) => far,
        Err(Errno::NOTCONN) => return Ok(false),
        Err(why) => return Err(wording(why)),
    };
    if far.is_some_and(|far| far == near) {
        return Err(wording(Errno::CONNREFUSED));
    }
    Ok(true)
}

/// Whether fdguard lacks a resource. A service is not restarted because its supervisor has no
/// descriptor left.
fn is_ours(why: Errno) -> bool {
    matches!(
        why,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM
    )
}

/// The system's error text without its number.
pub(super) fn wording(why: Errno) -> String {
    match why {
        Errno::CONNREFUSED => "connection refused".to_owned(),
        Errno::CONNRESET => "connection reset".to_owned(),
        Errno::MFILE => "fdguard has no file descriptor left for a probe".to_owned(),
        why => {
            let text = std::io::Error::from(why).to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            text.to_lowercase()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use rustix::net::{AddressFamily, SocketType};

    use super::{Dial, Step, finished};
    use crate::poll::Readiness;

    #[test]
    fn a_port_that_is_connected_to_itself_is_refused() {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        rustix::net::bind(&socket, &any).unwrap();
        let near = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
        rustix::net::connect(&socket, &near).unwrap();
        assert_eq!(finished(&socket), Err("connection refused".to_owned()));
    }

    #[test]
    fn without_a_descriptor_of_our_own_nothing_is_said_about_the_service() {
        let address: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let mut dial = Dial::new(Arc::new([address]));
        let held: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok())
            .take(200_000)
            .collect();
        let step = dial.poll(&Readiness::default());
        let is_full = std::fs::File::open("/dev/null").is_err();
        drop(held);
        if !is_full {
            testkit::skip("the limit of descriptors is too high to be reached");
            return;
        }
        assert!(matches!(step, Step::Blind(_)), "{step:?}");
    }
}
