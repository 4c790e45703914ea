//! Descriptors that the runtime waits for: a process, and the keeper of a tree.

#![expect(
    unsafe_code,
    reason = "the runtime must be promised that a descriptor stays the same while it waits for it"
)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use fdguard_process::tree::{Stop, Told, Tree};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that becomes readable once and stays so: a pidfd.
#[derive(Debug)]
pub(super) struct WatchedFd(AsyncFd<OwnedFd>);

impl WatchedFd {
    /// On the runtime that calls.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: an `OwnedFd` is open and stays the same until it is dropped, and it is private here: nobody takes or replaces it.
        let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(Self(watched?))
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        self.0.get_ref()
    }

    /// Waits until it is readable.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.0
            .readable()
            .await
            .map(|mut ready| ready.retain_ready())
    }
}

/// A tree whose keeper is listened to.
#[derive(Debug)]
pub(super) struct WatchedTree(AsyncFd<Held>);

#[derive(Debug)]
struct Held(Tree);

impl AsRawFd for Held {
    fn as_raw_fd(&self) -> i32 {
        self.0.fd().as_raw_fd()
    }
}

impl WatchedTree {
    /// On the runtime that calls.
    pub(super) fn new(tree: Tree) -> io::Result<Self> {
        // SAFETY: a tree has one control socket from its start to its drop, and it is private here: nobody takes or replaces it.
        let watched = unsafe { AsyncFd::register_with_interest(Held(tree), Interest::READABLE) };
        Ok(Self(watched?))
    }

    /// Asks it to end.
    pub(super) fn stop(&mut self, how: Stop) {
        self.0.get_mut().0.stop(how);
    }

    /// The next that its keeper tells. May be dropped while it waits: nothing is lost.
    pub(super) async fn told(&mut self) -> io::Result<Told> {
        loop {
            let mut ready = self.0.readable_mut().await?;
            if let Some(told) = ready.get_inner_mut().0.told() {
                return Ok(told);
            }
            ready.clear_ready();
        }
    }
}
