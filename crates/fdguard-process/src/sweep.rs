//! Ends a tree from outside if its keeper is stopped or traced.
//!
//! Such a keeper is still the parent of every orphan below it, so its descendants are exactly the
//! tree. Each process is signalled only after its ancestry up to the keeper was read twice, with
//! its pidfd open.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::adopt;
use crate::identity::{ProcessId, signal_checked};
use crate::keeper;
use crate::mark;
use crate::members::{self, Member};
use crate::sys;
use crate::tree::KeeperProcess;

/// The result of ending processes without a keeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepCount {
    /// Processes that were killed.
    pub killed: usize,
    /// Processes that did not end in time.
    pub left: usize,
}

/// Kills everything below a keeper, once. Returns the processes that were alive.
pub(crate) fn kill_below(keeper: KeeperProcess) -> Vec<Member> {
    let living = members::below(keeper.pid);
    for member in &living {
        if let Ok(pidfd) = keeper::pin_descendant(keeper.pid, member.pid)
            && keeper.is_there()
        {
            let _gone = sys::signal_pidfd(&pidfd, libc::SIGKILL);
        }
    }
    if keeper.is_there() {
        living
    } else {
        Vec::new()
    }
}

/// Ends the tree of a keeper whose owner is gone, and then the keeper. Waits at most this long.
#[must_use]
pub fn end_kept_by(keeper: &ProcessId, longest: Duration) -> SweepCount {
    let process = KeeperProcess {
        pid: keeper.pid(),
        started: Some(keeper.started()),
    };
    let ended = repeat(longest, || {
        let living = kill_below(process);
        living.into_iter().filter_map(Member::identity).collect()
    });
    if signal_checked(keeper, libc::SIGKILL).is_ok()
        && let Some(pidfd) = adopt::open(keeper.pid())
        && keeper.matches()
    {
        adopt::await_end(&pidfd, Instant::now() + longest);
    }
    ended
}

/// How many processes of the trees that this owner started are alive. The owner is given by its
/// pid, and its start in ticks since boot.
#[must_use]
pub fn count_trees_of(owner: u32, started: u64) -> usize {
    mark::find(&mark::owner(owner, started)).len()
}

/// Ends the trees that an owner left behind, given by its pid, and its start in ticks since boot.
/// They are identified by the mark in their environment. Their keepers are continued, and end
/// processes that have wiped their environment.
#[must_use]
pub fn end_trees_of(owner: u32, started: u64, longest: Duration) -> SweepCount {
    end_marked(&mark::owner(owner, started), longest)
}

/// Ends every process whose mark has this prefix.
pub(crate) fn end_marked(mark: &str, longest: Duration) -> SweepCount {
    repeat(longest, || {
        let found = mark::find(mark);
        // A keeper is not marked, so it is found through the processes below it.
        let keepers = keepers_above(&found);
        for process in &found {
            let _gone = signal_checked(process, libc::SIGKILL);
        }
        // CONT has no effect on a keeper that is not stopped, whichever owner it has.
        for keeper in &keepers {
            let _gone = signal_checked(keeper, libc::SIGCONT);
        }
        found
    })
}

/// Kills repeatedly until no process is found, or the time is up.
fn repeat(longest: Duration, mut kill: impl FnMut() -> Vec<ProcessId>) -> SweepCount {
    let deadline = Instant::now() + longest;
    let mut killed = Vec::new();
    loop {
        let found = kill();
        let Some(first) = found.first() else {
            let killed = killed.len();
            return SweepCount { killed, left: 0 };
        };
        let first = adopt::open(first.pid()).filter(|_| first.matches());
        let left = found.len();
        for process in found {
            if !killed.contains(&process) {
                killed.push(process);
            }
        }
        if Instant::now() >= deadline {
            let killed = killed.len().saturating_sub(left);
            return SweepCount { killed, left };
        }
        if let Some(pidfd) = first {
            adopt::await_end(&pidfd, deadline);
        }
    }
}

/// The nearest keepers above these processes.
fn keepers_above(processes: &[ProcessId]) -> BTreeSet<ProcessId> {
    let nearest = |process: &ProcessId| {
        let keeper = members::ancestors(process.pid()).find(|pid| members::is_keeper(*pid))?;
        ProcessId::read(keeper).ok()
    };
    processes.iter().filter_map(nearest).collect()
}
