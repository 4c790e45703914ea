//! Descriptors on the runtime's one epoll.

#![expect(
    unsafe_code,
    reason = "tokio wants a promise that what it watches stays open and the same"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use fdguard_process::tree::{StopPlan, Tree, TreeEvent};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout_at;

/// Watches a descriptor and owns it.
pub(crate) fn owned(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open until it is dropped, always has the same number, and is dropped
    // after it is deregistered.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    watched.map_err(io::Error::from)
}

/// Waits once until this can be read.
pub(crate) async fn readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let watched = borrowed(fd, Interest::READABLE)?;
    watched.readable().await.map(drop)
}

/// Waits once until this can be written.
pub(crate) async fn writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let watched = borrowed(fd, Interest::WRITABLE)?;
    watched.writable().await.map(drop)
}

fn borrowed(fd: BorrowedFd<'_>, interest: Interest) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    // SAFETY: it is borrowed for as long as it is watched, so its owner cannot close it before, and
    // its number is always the same.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    watched.map_err(io::Error::from)
}

/// A tree on the runtime that its owner polls: it becomes ready when the keeper reports something.
#[derive(Debug)]
pub(crate) struct Control(AsyncFd<Number>);

/// The number of a tree's own descriptor.
#[derive(Debug)]
struct Number(i32);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> i32 {
        self.0
    }
}

impl Control {
    /// Watches a tree, which its owner drops after this: the session's keeper does.
    pub(crate) fn of(tree: &Tree) -> io::Result<Self> {
        let number = Number(tree.fd().as_raw_fd());
        // SAFETY: the tree holds its descriptor until it is dropped, and the session's keeper,
        // which owns both, drops this first.
        let watched = unsafe { AsyncFd::register_with_interest(number, Interest::READABLE) };
        Ok(Self(watched.map_err(io::Error::from)?))
    }

    /// Waits until something was reported or the tree must be checked, and polls it; `None` means a
    /// spurious wake-up.
    pub(crate) async fn hear<T>(
        &self,
        look: Option<Instant>,
        ask: impl FnOnce() -> Option<T>,
    ) -> io::Result<Option<T>> {
        let Some(ready) = until(look, self.0.readable()).await else {
            return Ok(ask());
        };
        let mut ready = ready?;
        let heard = ask();
        if heard.is_none() {
            ready.clear_ready();
        }
        Ok(heard)
    }
}

/// A tree that the runtime holds, with its keeper listened to.
#[derive(Debug)]
pub(crate) struct WatchedTree(AsyncFd<HeldPidfd>);

#[derive(Debug)]
struct HeldPidfd(Tree);

impl AsRawFd for HeldPidfd {
    fn as_raw_fd(&self) -> i32 {
        self.0.fd().as_raw_fd()
    }
}

impl WatchedTree {
    /// On the runtime that calls.
    pub(crate) fn new(tree: Tree) -> io::Result<Self> {
        // SAFETY: a tree has one control socket from its start to its drop, and it is private here:
        // no code takes or replaces it.
        let watched =
            unsafe { AsyncFd::register_with_interest(HeldPidfd(tree), Interest::READABLE) };
        Ok(Self(watched?))
    }

    /// Asks it to end.
    pub(crate) fn stop(&mut self, how: StopPlan) {
        self.0.get_mut().0.stop(how);
    }

    /// After the keeper was lost: how many of its processes survive, if known.
    pub(crate) fn orphans_left(&self) -> Option<u32> {
        self.0.get_ref().0.orphans_left()
    }

    /// The next report of its keeper. Cancel-safe: nothing is lost.
    pub(crate) async fn told(&mut self) -> io::Result<TreeEvent> {
        loop {
            let look = self.0.get_ref().0.deadline();
            let Some(ready) = until(look, self.0.readable_mut()).await else {
                if let Some(told) = self.0.get_mut().0.told() {
                    return Ok(told);
                }
                continue;
            };
            let mut ready = ready?;
            if let Some(told) = ready.get_inner_mut().0.told() {
                return Ok(told);
            }
            ready.clear_ready();
        }
    }
}

/// Waits until this moment at the latest, if there is one.
pub(crate) async fn until<F: Future>(at: Option<Instant>, wait: F) -> Option<F::Output> {
    match at {
        Some(at) => timeout_at(at.into(), wait).await.ok(),
        None => Some(wait.await),
    }
}
