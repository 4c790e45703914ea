//! How a component takes part in the event loop.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What the components wait for until the next poll.
#[derive(Debug, Default)]
pub struct Interest<'f> {
    fds: Vec<PollFd<'f>>,
    deadline: Option<Instant>,
}

impl<'f> Interest<'f> {
    /// Waits until this is readable.
    pub fn read(&mut self, fd: BorrowedFd<'f>) {
        self.fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
    }

    /// Waits until this is writable.
    pub fn write(&mut self, fd: BorrowedFd<'f>) {
        self.fds.push(PollFd::from_borrowed_fd(fd, PollFlags::OUT));
    }

    /// Waits only until this hangs up.
    pub fn hang_up(&mut self, fd: BorrowedFd<'f>) {
        let nothing = PollFlags::empty();
        self.fds.push(PollFd::from_borrowed_fd(fd, nothing));
    }

    /// Waits until this moment at the latest.
    pub fn until(&mut self, moment: Instant) {
        self.deadline = Some(self.deadline.map_or(moment, |at| at.min(moment)));
    }

    /// Waits.
    pub fn wait(mut self) -> rustix::io::Result<Readiness> {
        let left = self
            .deadline
            .map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut self.fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let happened = self.fds.iter().filter(|fd| !fd.revents().is_empty());
        Ok(Readiness(happened.map(Number::of).collect()))
    }
}

/// The descriptors where something happened.
#[derive(Debug, Default)]
pub struct Readiness(Vec<Number>);

/// The number of a descriptor, for comparison only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number(c_int);

impl Number {
    fn of(fd: impl AsFd) -> Self {
        Self(fd.as_fd().as_raw_fd())
    }
}

impl Readiness {
    /// Whether something happened here: it is readable, writable, or hung up.
    #[must_use]
    pub fn has(&self, fd: impl AsFd) -> bool {
        self.0.contains(&Number::of(fd))
    }
}
