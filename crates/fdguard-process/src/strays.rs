//! The end of a tree whose keeper was killed.
//!
//! Its orphans went to the next subreaper or to init, and cannot all be identified unless they are
//! in a cgroup. Known processes are killed, each by its identity: the program, its descendants,
//! those seen before, and those with the mark of the tree.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use fdguard_proc::ProcKey;
use fdguard_proc::process::children;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use crate::adopt;
use crate::cgroup::Leaf;
use crate::members;
use crate::sweep;

/// The longest wait for a cgroup to become empty.
const LONGEST: Duration = Duration::from_secs(2);

/// A tree below whose program other trees are kept: if one of their keepers is killed, its orphans
/// become children of this tree's keeper.
#[derive(Clone, Copy, Debug)]
pub struct Strays {
    pub(crate) keeper: u32,
    pub(crate) main: ProcKey,
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
            let pidfd = first.open_pidfd();
            for stray in &strays {
                let _gone = stray.signal(Signal::KILL);
            }
            if let Ok(pidfd) = pidfd {
                adopt::await_end(&pidfd, deadline);
            }
        }
    }

    fn find(self) -> Option<Vec<ProcKey>> {
        let strays = members::living(children(self.keeper));
        // It is alive now, so it was alive when they were read, and its own children were not among
        // them.
        let others = strays.into_iter().filter(|stray| *stray != self.main);
        self.main.is_alive().then(|| others.collect())
    }
}

/// Ends the tree and returns how many processes with its mark are left.
pub(crate) fn end(
    main: ProcKey,
    seen: &[ProcKey],
    leaf: Option<&CStr>,
    mark: Option<&str>,
) -> usize {
    if let Some(leaf) = leaf.and_then(Leaf::open) {
        end_cgroup(&leaf);
    }
    // The pid means the program only while the program is alive: check again after the processes
    // below were read.
    let mut known = members::below(main.pid);
    if !main.is_alive() {
        known.clear();
    }
    for member in [main].iter().chain(&known).chain(seen) {
        let _gone = member.signal(Signal::KILL);
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
