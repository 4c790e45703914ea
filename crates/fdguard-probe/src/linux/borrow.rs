//! A descriptor of another process, borrowed for one query.
//!
//! `pidfd_getfd` duplicates the open file; querying and closing the duplicate leaves the target's
//! descriptor unchanged. It requires the permission to attach, so its result is optional.

use std::os::fd::{AsFd as _, OwnedFd};

use fdguard_core::{Fd, Pid};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

use super::socket_entry::SocketAnswer;
use super::socket_query;
use crate::parse::sockaddr::SocketName;

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

    /// The descriptor at this number, if it is still the file with this inode.
    pub(super) fn borrow(&self, fd: Fd, ino: u64) -> Result<OwnedFd, Errno> {
        let number = i32::try_from(fd).or(Err(Errno::BADF))?;
        let flags = PidfdGetfdFlags::empty();
        let borrowed = rustix::process::pidfd_getfd(&self.process, number, flags)?;
        let same = rustix::fs::fstat(&borrowed).is_ok_and(|stat| stat.st_ino == ino);
        same.then_some(borrowed).ok_or(Errno::BADF)
    }

    /// Whether the other end of this pipe is closed: a reader sees the end of file, a writer an
    /// error.
    pub(super) fn is_widowed(&self, fd: Fd, ino: u64) -> Option<bool> {
        let pipe = self.borrow(fd, ino).ok()?;
        let mut asked = [PollFd::new(&pipe, PollFlags::empty())];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut asked, Some(&now)).ok()?;
        let answer = asked[0].revents();
        Some(answer.intersects(PollFlags::HUP | PollFlags::ERR))
    }
}

/// The properties of a borrowed socket.
pub(super) fn ask_socket(socket: &OwnedFd) -> SocketAnswer {
    let socket = socket.as_fd();
    let name = |bytes: Option<Vec<u8>>| SocketName::parse(&bytes?);
    SocketAnswer {
        kind: socket_query::number(socket, libc::SO_TYPE),
        protocol: socket_query::number(socket, libc::SO_PROTOCOL),
        accepts: socket_query::number(socket, libc::SO_ACCEPTCONN) == Some(1),
        tcp_state: socket_query::tcp_state(socket),
        local: name(socket_query::local_name(socket)),
        remote: name(socket_query::remote_name(socket)),
    }
}

/// The name of the interface that a packet socket is bound to, resolved in its own namespace.
pub(super) fn interface_name(socket: &OwnedFd, answer: &SocketAnswer) -> Option<String> {
    match answer.local {
        Some(SocketName::Packet { interface, .. }) if interface != 0 => {
            rustix::net::netdevice::index_to_name(socket, interface).ok()
        }
        _ => None,
    }
}
