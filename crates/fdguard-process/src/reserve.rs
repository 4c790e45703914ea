//! The owner's own descriptors: few, close-on-exec, at high numbers, with a reserve for a full
//! table.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// fdguard's descriptors start this far below the soft limit.
const BAND: u64 = 64;
/// Higher numbers are not used: they would cost memory, and `select` cannot handle them.
const CEILING: u64 = 1024;

/// The first high number for this soft limit.
fn floor(soft: Option<u64>) -> i32 {
    let limit = soft.map_or(CEILING, |soft| soft.min(CEILING));
    let floor = if limit >= 2 * BAND {
        limit - BAND
    } else {
        limit / 2
    };
    i32::try_from(floor).unwrap_or(0)
}

/// Moves a descriptor up, away from the numbers that programs expect. One that cannot be moved
/// stays where it is.
#[must_use]
pub fn raise(fd: OwnedFd) -> OwnedFd {
    let floor = floor(getrlimit(Resource::Nofile).current);
    fcntl_dupfd_cloexec(&fd, floor).unwrap_or(fd)
}

/// Spare descriptors, held so that others can be opened when it matters most.
#[derive(Debug)]
pub struct Reserve {
    wanted: usize,
    held: Vec<OwnedFd>,
}

impl Reserve {
    /// The most that [`Tree::start_with`](crate::tree::Tree::start_with) needs at any moment: the
    /// two that a tree holds, and one to move them up.
    pub const FOR_A_START: usize = 3;
    /// The same for a tree that holds only one descriptor
    /// ([`Options::keep_pidfd`](crate::tree::Options::keep_pidfd)).
    pub const FOR_A_START_WITHOUT_PIDFD: usize = 2;

    /// Reserves this many.
    pub fn new(count: usize) -> io::Result<Self> {
        let mut reserve = Self {
            wanted: count,
            held: Vec::with_capacity(count),
        };
        reserve.fill()?;
        Ok(reserve)
    }

    /// How many are held now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Releases all of them, so that as many others can be opened.
    pub fn release(&mut self) {
        self.held.clear();
    }

    /// Reserves them again, as far as possible; returns whether all are held.
    pub fn take_back(&mut self) -> bool {
        self.fill().is_ok()
    }

    /// Releases all of them while `work` runs, then reserves them again as far as possible.
    pub fn lend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.release();
        let result = work();
        self.take_back();
        result
    }

    fn fill(&mut self) -> io::Result<()> {
        while self.held.len() < self.wanted {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            self.held
                .push(raise(open(c"/dev/null", flags, Mode::empty())?));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_numbers_are_below_the_limit_and_below_1024() {
        assert_eq!(floor(None), 960);
        assert_eq!(floor(Some(1 << 20)), 960);
        assert_eq!(floor(Some(256)), 192);
        assert_eq!(floor(Some(20)), 10);
        assert_eq!(floor(Some(0)), 0);
    }

    #[test]
    fn what_was_held_back_is_taken_back() {
        let mut reserve = Reserve::new(3).unwrap();
        assert_eq!(reserve.held(), 3);
        reserve.release();
        assert_eq!(reserve.held(), 0);
        assert!(reserve.take_back());
        assert_eq!(reserve.lend(|| 7), 7);
        assert_eq!(reserve.held(), 3);
    }
}
