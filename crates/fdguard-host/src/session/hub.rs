//! The hub: the one socket of a host through which all sessions receive commands and report their
//! ends.
//!
//! A session's program holds a datagram socket connected to the hub's: the kernel accepts datagrams
//! to it only from the hub. The hub's own address is secret ([`HubAddress`]), because another user
//! could fill its queue. Programs in sessions can send anything, so an end counts only with its
//! nonce, 128 random bits that are new for each command, and only from the address of the session
//! that received it. Anything else is counted and ignored.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fdguard_process::random;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType,
    bind, connect, getsockname, recvfrom, sendto, socket_with,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::hub_address::HubAddress;
use super::message::{self, End};
use crate::{Error, watched_tree};

/// Shared by all sessions of a host: the one socket on which ends of commands arrive.
#[derive(Debug)]
pub struct Hub {
    inner: Arc<Inner>,
    listener: AbortHandle,
}

#[derive(Debug)]
struct Inner {
    socket: AsyncFd<OwnedFd>,
    address: HubAddress,
    waiting: Mutex<HashMap<String, Waiting>>,
    strangers: AtomicU64,
}

#[derive(Debug)]
struct Waiting {
    from: SocketAddrUnix,
    tell: oneshot::Sender<End>,
}

/// A session's end of the side channel, to be passed to its program.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) fd: OwnedFd,
    pub(super) address: SocketAddrUnix,
}

/// An end that is waited for; dropping it stops the wait.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) nonce: String,
    pub(super) end: oneshot::Receiver<End>,
    hub: Arc<Inner>,
}

impl Hub {
    /// Opens the socket and starts to listen, on the calling runtime.
    pub fn open() -> Result<Arc<Self>, Error> {
        let (fd, address) = HubAddress::bind()?;
        let socket = watched_tree::owned(fd, Interest::READABLE);
        let inner = Arc::new(Inner {
            socket: socket.map_err(Error::io("cannot watch the side-channel socket"))?,
            address,
            waiting: Mutex::default(),
            strangers: AtomicU64::new(0),
        });
        let listener = tokio::spawn(listen(Arc::clone(&inner))).abort_handle();
        Ok(Arc::new(Self { inner, listener }))
    }

    /// Messages that no command waited for: late ones of commands that are given up, and
    /// strangers'.
    #[must_use]
    pub fn unexpected(&self) -> u64 {
        self.inner.strangers.load(Ordering::Relaxed)
    }

    /// Whether only the host can find its socket; false if no directory for it could be created.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.inner.address.is_private()
    }

    /// A new end of the side channel.
    pub(super) fn side(&self) -> Result<Side, Error> {
        let (fd, address) = bound(SocketFlags::empty())?;
        let hub = self.inner.address.get();
        hub.and_then(|hub| connect(&fd, &hub)).map_err(|errno| {
            Error::io("cannot connect the session's side channel")(errno.into())
        })?;
        Ok(Side { fd, address })
    }

    /// A new nonce, and the end that arrives with it from this address.
    pub(super) fn expect(&self, from: &SocketAddrUnix) -> Result<Expected, Error> {
        let nonce = random::nonce().map_err(Error::random)?;
        let (tell, end) = oneshot::channel();
        let from = from.clone();
        let waiting = Waiting { from, tell };
        self.inner.lock().insert(nonce.clone(), waiting);
        Ok(Expected {
            nonce,
            end,
            hub: Arc::clone(&self.inner),
        })
    }

    /// Sends datagrams to a session. It is waiting for them, so there is room.
    pub(super) fn send(&self, to: &SocketAddrUnix, datagrams: &[&[u8]]) -> Result<(), Errno> {
        for datagram in datagrams {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            sendto(self.inner.socket.get_ref(), datagram, flags, to)?;
        }
        Ok(())
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, bytes: &[u8], from: Option<&SocketAddrUnix>) {
        let heard = message::parse(bytes).and_then(|(nonce, end)| {
            let mut waiting = self.lock();
            let is_due = waiting
                .get(nonce)
                .is_some_and(|one| Some(&one.from) == from);
            is_due
                .then(|| waiting.remove(nonce))
                .flatten()
                .zip(Some(end))
        });
        match heard {
            // The waiter may have given up at this moment.
            Some((one, end)) => drop(one.tell.send(end)),
            None => {
                self.strangers.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.hub.lock().remove(&self.nonce);
    }
}

async fn listen(hub: Arc<Inner>) {
    let mut room = vec![0; message::LONGEST];
    // Readiness fails only when the runtime ends.
    while let Ok(mut ready) = hub.socket.readable().await {
        match recvfrom(hub.socket.get_ref(), &mut room[..], RecvFlags::DONTWAIT) {
            Ok((length, _, from)) => {
                let from: Option<SocketAddrUnix> =
                    from.and_then(|from: SocketAddrAny| from.try_into().ok());
                hub.hear(room.get(..length).unwrap_or_default(), from.as_ref());
            }
            Err(Errno::AGAIN) => ready.clear_ready(),
            // Interrupted, or an error that one sender left behind: the next message is another.
            Err(_) => {}
        }
    }
}

/// A datagram socket with a name that the kernel chose.
pub(super) fn bound(flags: SocketFlags) -> Result<(OwnedFd, SocketAddrUnix), Error> {
    let attempt = || {
        let flags = SocketFlags::CLOEXEC | flags;
        let fd = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        bind(&fd, &SocketAddrUnix::new_unnamed())?;
        let address = SocketAddrUnix::try_from(getsockname(&fd)?)?;
        Ok((fd, address))
    };
    attempt().map_err(|errno: Errno| Error::io("cannot create a side-channel socket")(errno.into()))
}
