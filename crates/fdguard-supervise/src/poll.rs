//! How a component takes part in the event loop.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::Instant;

use fdguard_process::tree::Tree;
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

    /// Waits until this tree may have an event.
    pub fn tree(&mut self, tree: &'f Tree) {
        let interest = tree.interest();
        interest
            .fds
            .into_iter()
            .flatten()
            .for_each(|fd| self.read(fd));
        interest.until.into_iter().for_each(|at| self.until(at));
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

    /// Whether this tree may have an event.
    #[must_use]
    pub fn has_tree(&self, tree: &Tree, now: Instant) -> bool {
        let interest = tree.interest();
        let is_due = interest.until.is_some_and(|at| at <= now);
        is_due || interest.fds.into_iter().flatten().any(|fd| self.has(fd))
    }
}
