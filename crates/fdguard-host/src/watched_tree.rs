//! Descriptors on the runtime's one epoll.

#![expect(
    unsafe_code,
    reason = "tokio wants a promise that what it watches stays open and the same"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// A tree that the runtime watches and other threads may query. Empty before its start and after its
/// end.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedTree(Arc<Mutex<Option<Tree>>>);

impl SharedTree {
    fn lock(&self) -> MutexGuard<'_, Option<Tree>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the tree, if there is one.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&mut Tree) -> T) -> Option<T> {
        self.lock().as_mut().map(ask)
    }
}

/// A tree on the runtime. Drop ends it. The tree keeps no pidfd of its program, so that its control
/// socket is all there is to watch.
#[derive(Debug)]
pub(crate) struct WatchedTree {
    /// Before the tree: a watched descriptor must stay open until it is deregistered.
    control: AsyncFd<Number>,
    tree: TreeOwner,
}

/// The number of a tree's own descriptor.
#[derive(Debug)]
struct Number(i32);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> i32 {
        self.0
    }
}

/// Takes the tree away when it is dropped.
#[derive(Debug)]
struct TreeOwner(SharedTree);

impl Drop for TreeOwner {
    fn drop(&mut self) {
        // The drop of a tree may wait, and must not hold the lock.
        let tree = self.0.lock().take();
        drop(tree);
    }
}

impl WatchedTree {
    /// On the runtime that calls. The place must be empty.
    pub(crate) fn new(tree: Tree, place: &SharedTree) -> io::Result<Self> {
        let number = Number(tree.fd().as_raw_fd());
        // SAFETY: a tree has one control socket from its start to its drop. Only `TreeOwner` drops
        // it, after `control` is deregistered.
        let control = unsafe { AsyncFd::register_with_interest(number, Interest::READABLE) }?;
        *place.lock() = Some(tree);
        let tree = TreeOwner(place.clone());
        Ok(Self { control, tree })
    }

    /// Asks it to end.
    pub(crate) fn stop(&self, how: StopPlan) {
        self.tree.0.with(|tree| tree.stop(how));
    }

    /// After the keeper was lost: how many of its processes survive, if known.
    pub(crate) fn orphans_left(&self) -> Option<u32> {
        self.tree.0.with(|tree| tree.orphans_left()).flatten()
    }

    /// The next event; waits forever if there is none to come. Cancel-safe: nothing is lost.
    pub(crate) async fn told(&self) -> io::Result<TreeEvent> {
        loop {
            let look = |tree: &mut Tree| (!tree.is_over()).then(|| tree.deadline());
            let Some(look) = self.tree.0.with(look).flatten() else {
                // A closed socket stays readable.
                return std::future::pending().await;
            };
            let ready = until(look, self.control.readable()).await.transpose()?;
            if let Some(told) = self.tree.0.with(Tree::told).flatten() {
                return Ok(told);
            }
            if let Some(mut ready) = ready {
                ready.clear_ready();
            }
        }
    }

    /// Lets go of the tree. The drop may wait for the keeper's last moment, so it is done where
    /// waiting is allowed.
    pub(crate) async fn release(self) {
        let Self { control, tree } = self;
        drop(control);
        // Fails only when the runtime ends; then the tree is dropped, too.
        let _ended = tokio::task::spawn_blocking(move || drop(tree)).await;
    }
}

/// Waits until this moment at the latest, if there is one.
async fn until<F: Future>(at: Option<Instant>, wait: F) -> Option<F::Output> {
    match at {
        Some(at) => timeout_at(at.into(), wait).await.ok(),
        None => Some(wait.await),
    }
}
