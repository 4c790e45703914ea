//! Descriptors on the runtime's one epoll.

#![expect(
    unsafe_code,
    reason = "tokio wants a promise that what it watches stays open"
)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use fdguard_process::tree::Tree;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a descriptor and owns it.
pub(super) fn owned(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open until it is dropped, always has the same number, and is dropped after it is not watched any more.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    watched.map_err(io::Error::from)
}

/// A tree on the runtime: it tells when its keeper says something.
#[derive(Debug)]
pub(super) struct Control(AsyncFd<Number>);

/// The number of a tree's own descriptor.
#[derive(Debug)]
struct Number(i32);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> i32 {
        self.0
    }
}

impl Control {
    /// Watches a tree, which its owner drops after this: [`super::keeper::Keeper`] does.
    pub(super) fn of(tree: &Tree) -> io::Result<Self> {
        let number = Number(tree.fd().as_raw_fd());
        // SAFETY: the tree holds its descriptor until it is dropped, and `Keeper`, which owns both, drops this first.
        let watched = unsafe { AsyncFd::register_with_interest(number, Interest::READABLE) };
        Ok(Self(watched.map_err(io::Error::from)?))
    }

    /// Waits until something was said, and asks what; `None` was a false alarm.
    pub(super) async fn hear<T>(&self, ask: impl FnOnce() -> Option<T>) -> io::Result<Option<T>> {
        let mut ready = self.0.readable().await?;
        let heard = ask();
        if heard.is_none() {
            ready.clear_ready();
        }
        Ok(heard)
    }
}
