//! Waiting for a descriptor once, on the runtime's one epoll.

#![expect(
    unsafe_code,
    reason = "tokio wants a promise that what it watches stays open"
)]

use std::io;
use std::os::fd::BorrowedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits until this can be read.
pub(super) async fn readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let watched = watch(fd, Interest::READABLE)?;
    watched.readable().await.map(drop)
}

/// Waits until this can be written.
pub(super) async fn writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let watched = watch(fd, Interest::WRITABLE)?;
    watched.writable().await.map(drop)
}

fn watch(fd: BorrowedFd<'_>, interest: Interest) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    // SAFETY: it is borrowed for as long as it is watched, so its owner cannot close it before, and its number is always the same.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    watched.map_err(io::Error::from)
}
