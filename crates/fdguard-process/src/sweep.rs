//! Ends a tree from outside if its keeper is stopped or traced.
//!
//! Such a keeper is still the parent of every orphan below it, so its descendants are exactly the
//! tree. Each process is signalled only after its ancestry up to the keeper was read twice, with
//! its pidfd open.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fdguard_proc::ProcKey;
use rustix::process::Signal;

use crate::adopt;
use crate::keeper;
use crate::mark;
use crate::members;
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
pub(crate) fn kill_below(keeper: KeeperProcess) -> Vec<ProcKey> {
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
pub fn end_kept_by(keeper: ProcKey, longest: Duration) -> SweepCount {
    let process = KeeperProcess {
        pid: keeper.pid,
        started: Some(keeper.start_ticks),
    };
    let ended = repeat(longest, || kill_below(process));
    if let Ok(pidfd) = keeper.open_pidfd()
        && sys::signal_pidfd(&pidfd, libc::SIGKILL).is_ok()
    {
        adopt::await_end(&pidfd, Instant::now() + longest);
    }
    ended
}

/// How many processes of the trees that this owner started are alive.
#[must_use]
pub fn count_trees_of(owner: ProcKey) -> usize {
    mark::find(&mark::owner(owner)).len()
}

/// Ends the trees that an owner left behind. They are identified by the mark in their environment.
/// Their keepers are continued, and end processes that have wiped their environment.
#[must_use]
pub fn end_trees_of(owner: ProcKey, longest: Duration) -> SweepCount {
    end_marked(&mark::owner(owner), longest)
}

/// Ends every process whose mark has this prefix.
pub(crate) fn end_marked(mark: &str, longest: Duration) -> SweepCount {
    repeat(longest, || {
        let found = mark::find(mark);
        // A keeper is not marked, so it is found through the processes below it.
        let keepers = keepers_above(&found);
        for process in &found {
            let _gone = process.signal(Signal::KILL);
        }
        // CONT has no effect on a keeper that is not stopped, whichever owner it has.
        for keeper in &keepers {
            let _gone = keeper.signal(Signal::CONT);
        }
        found
    })
}

/// Kills repeatedly until no process is found, or the time is up.
fn repeat(longest: Duration, mut kill: impl FnMut() -> Vec<ProcKey>) -> SweepCount {
    let deadline = Instant::now() + longest;
    let mut killed = Vec::new();
    loop {
        let found = kill();
        let Some(first) = found.first() else {
            let killed = killed.len();
            return SweepCount { killed, left: 0 };
        };
        let first = first.open_pidfd();
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
        if let Ok(pidfd) = first {
            adopt::await_end(&pidfd, deadline);
        }
    }
}

/// The nearest keepers above these processes.
fn keepers_above(processes: &[ProcKey]) -> BTreeSet<ProcKey> {
    let nearest = |process: &ProcKey| {
        let keeper = members::ancestors(process.pid).find(|pid| members::is_keeper(*pid))?;
        ProcKey::read(keeper).ok()
    };
    processes.iter().filter_map(nearest).collect()
}
