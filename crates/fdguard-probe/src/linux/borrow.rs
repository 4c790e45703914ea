//! A descriptor of another process, borrowed for one question.
//!
//! `pidfd_getfd` gives a duplicate of the very open file; asking it and closing it leaves the target's
//! own descriptor as it was. It needs the right to attach, so whatever it answers is an extra.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use fdguard_core::{Fd, Pid};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

/// Borrows from one process.
#[derive(Debug)]
pub(super) struct Borrower {
    process: OwnedFd,
}

impl Borrower {
    /// `None` when the process is gone or the kernel is too old.
    pub(super) fn new(pid: Pid) -> Option<Self> {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed())?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(Self { process })
    }

    /// The descriptor at this number, if it still is the file with this inode.
    fn borrow(&self, fd: Fd, ino: u64) -> Option<OwnedFd> {
        let number = i32::try_from(fd).ok()?;
        let flags = PidfdGetfdFlags::empty();
        let borrowed = rustix::process::pidfd_getfd(&self.process, number, flags).ok()?;
        let same = rustix::fs::fstat(&borrowed).is_ok_and(|stat| stat.st_ino == ino);
        same.then_some(borrowed)
    }

    /// Whether nobody holds the other end of this pipe: a reader sees the end of file, a writer an error.
    pub(super) fn is_widowed(&self, fd: Fd, ino: u64) -> Option<bool> {
        let pipe = self.borrow(fd, ino)?;
        let mut asked = [PollFd::new(&pipe, PollFlags::empty())];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut asked, Some(&now)).ok()?;
        let answer = asked[0].revents();
        Some(answer.intersects(PollFlags::HUP | PollFlags::ERR))
    }

    /// The local address of a socket that no table lists: one that was connected keeps its port until
    /// it is closed, one that never was has none.
    pub(super) fn local_address(&self, fd: Fd, ino: u64) -> Option<SocketAddr> {
        let socket = self.borrow(fd, ino)?;
        let address = rustix::net::getsockname(&socket).ok()?;
        SocketAddr::try_from(address).ok()
    }
}
