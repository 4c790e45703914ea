//! The last resort, for a supervisor that starts all of its children itself: when a keeper is
//! killed, its orphans become the supervisor's children and are known exactly again.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fdguard_proc::process::children;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, set_child_subreaper};

use crate::sys;

/// Makes this process the parent of orphans below it, including those of a killed keeper. They must
/// be reaped: [`end_adopted`] does that. Not for a process whose libraries start children of their
/// own.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// The longest wait for the orphans of a killed keeper. KILL takes milliseconds.
const LONGEST: Duration = Duration::from_secs(2);

/// Children of this process that are not orphans.
static OWN: Mutex<Own> = Mutex::new(Own {
    children: BTreeSet::new(),
    adopts: false,
});

#[derive(Debug)]
pub(crate) struct Own {
    /// Keepers of trees, and children that existed before orphans were adopted.
    children: BTreeSet<u32>,
    adopts: bool,
}

/// Every caller that forks or reaps a keeper holds this meanwhile. Otherwise a child that is not
/// registered yet, or whose pid was already reused, would be taken for an orphan.
pub(crate) fn own() -> MutexGuard<'static, Own> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Own {
    pub(crate) fn add(&mut self, keeper: u32) {
        self.children.insert(keeper);
    }

    pub(crate) fn forget(&mut self, keeper: u32) {
        self.children.remove(&keeper);
    }
}

/// Like [`adopt_orphans`], for a process whose later children are all keepers of trees: from now on
/// a tree whose keeper was killed ends with all of its processes, including those never seen. See
/// [`Tree::orphans_left`](crate::tree::Tree::orphans_left).
pub fn adopt_orphans_of_trees() -> io::Result<()> {
    let mut own = own();
    // A program that ran here before an exec may have left children, which must not be ended.
    own.children.extend(children(std::process::id()));
    adopt_orphans()?;
    own.adopts = true;
    Ok(())
}

/// Ends the orphans of a killed keeper, which is a child of this process, and returns how many are
/// left; `None` if they are not adopted.
pub(crate) fn end_orphans_of(keeper: u32) -> Option<u32> {
    let own = own();
    if !own.adopts {
        return None;
    }
    // A keeper closes its descriptors before its children are reparented: they are children of this
    // process once the keeper is a zombie.
    if let Some(pidfd) = open(keeper) {
        await_end(&pidfd, Instant::now() + LONGEST);
    }
    let known: Vec<u32> = own.children.iter().copied().collect();
    Some(end_adopted(&known, LONGEST).left)
}

/// What became of adopted processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepResult {
    /// Processes that were killed, or had ended, and were reaped.
    pub ended: u32,
    /// Processes that did not end in time.
    pub left: u32,
}

/// Kills and reaps every child of this process that is not in `known`, and those that become
/// children as a result, until none is left or the time is up. `known` lists all children that the
/// caller started itself, including the keepers of its trees. No other thread may wait for
/// children.
#[must_use]
pub fn end_adopted(known: &[u32], longest: Duration) -> SweepResult {
    let deadline = Instant::now() + longest;
    let mut swept = SweepResult::default();
    let adopted = || -> Vec<u32> {
        let children = children(std::process::id()).into_iter();
        children.filter(|pid| !known.contains(pid)).collect()
    };
    loop {
        let adopted_now = adopted();
        let Some(first) = adopted_now.first().and_then(|pid| open(*pid)) else {
            return swept;
        };
        for pid in &adopted_now {
            // An unreaped child: its pid cannot be reused.
            let _gone = sys::signal_child(*pid, libc::SIGKILL);
        }
        await_end(&first, deadline);
        for pid in &adopted_now {
            if let Ok(Some(_)) = sys::reap(Some(*pid), false) {
                swept.ended += 1;
            }
        }
        if Instant::now() >= deadline {
            swept.left = u32::try_from(adopted().len()).unwrap_or(u32::MAX);
            return swept;
        }
    }
}

pub(crate) fn open(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

pub(crate) fn await_end(pidfd: &OwnedFd, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).unwrap_or_default();
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let _happened = poll(&mut fds, Some(&timeout));
}
