//! The end of a tree whose keeper was killed.
//!
//! Its orphans went to the next subreaper or to init, and cannot all be identified unless they are
//! in a cgroup. Known processes are killed, each by its identity: the program, its descendants,
//! those seen before, and those with the mark of the tree.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::adopt;
use crate::cgroup::Leaf;
use crate::identity::{ProcessId, signal_checked};
use crate::members::{self, Member};
use crate::sweep;

/// The longest wait for a cgroup to become empty.
const LONGEST: Duration = Duration::from_secs(2);

/// A tree below whose program other trees are kept: if one of their keepers is killed, its orphans
/// become children of this tree's keeper.
#[derive(Clone, Copy, Debug)]
pub struct Strays {
    pub(crate) keeper: u32,
    pub(crate) main: Member,
}

impl Strays {
    /// Ends such orphans and returns how many are left. `None` if the program has ended, because
    /// then its own children are among them. May wait, two seconds at most.
    #[must_use]
    pub fn end(self) -> Option<u32> {
        let deadline = Instant::now() + LONGEST;
        loop {
            let strays = self.find()?;
            let Some(first) = strays.first() else {
                return Some(0);
            };
            if Instant::now() >= deadline {
                return u32::try_from(strays.len()).ok();
            }
            let pidfd = adopt::open(first.pid);
            for stray in &strays {
                if let Some(identity) = stray.identity() {
                    let _gone = signal_checked(&identity, libc::SIGKILL);
                }
            }
            if let Some(pidfd) = pidfd {
                adopt::await_end(&pidfd, deadline);
            }
        }
    }

    fn find(self) -> Option<Vec<Member>> {
        let strays = members::living(members::children(self.keeper));
        // It is alive now, so it was alive when they were read, and its own children were not among
        // them.
        let program = ProcessId::known(self.main.pid, self.main.started);
        let lives = program.is_some_and(|program| program.matches())
            && !members::living(vec![self.main.pid]).is_empty();
        let others = strays.into_iter().filter(|stray| *stray != self.main);
        lives.then(|| others.collect())
    }
}

/// Ends the tree and returns how many processes with its mark are left.
pub(crate) fn end(main: Member, seen: &[Member], leaf: Option<&CStr>, mark: Option<&str>) -> usize {
    if let Some(leaf) = leaf.and_then(Leaf::open) {
        end_cgroup(&leaf);
    }
    // The pid means the program only while the program is alive: check again after the processes
    // below were read.
    let mut known = members::below(main.pid);
    let program = ProcessId::known(main.pid, main.started);
    if !program.is_some_and(|program| program.matches()) {
        known.clear();
    }
    for member in [main].iter().chain(&known).chain(seen) {
        if let Some(identity) = member.identity() {
            let _gone = signal_checked(&identity, libc::SIGKILL);
        }
    }
    mark.map_or(0, |mark| sweep::end_marked(mark, LONGEST).left)
}

fn end_cgroup(leaf: &Leaf<'_>) {
    let deadline = Instant::now() + LONGEST;
    leaf.kill();
    while leaf.is_populated() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let mut fds = [PollFd::from_borrowed_fd(leaf.events(), PollFlags::PRI)];
        let timeout = Timespec::try_from(left).unwrap_or_default();
        let _happened = poll(&mut fds, Some(&timeout));
    }
    leaf.remove();
}
