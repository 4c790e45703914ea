//! The living processes of a tree, as seen by its owner.

use std::collections::{BTreeSet, VecDeque};
use std::fs;

use crate::identity::{ProcessId, Stat};
use crate::keeper::NAME;

/// Longer ancestries are not followed.
const GENERATIONS: usize = 64;

/// A process, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) pid: u32,
    pub(crate) started: u64,
}

impl Member {
    /// Its identity.
    pub(crate) fn identity(self) -> Option<ProcessId> {
        ProcessId::known(self.pid, self.started)
    }

    /// Whether it is alive, with this pid and start time.
    pub(crate) fn lives(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && !stat.has_ended())
    }
}

/// The living descendants of a process, nearest first.
pub(crate) fn below(root: u32) -> Vec<Member> {
    let mut found = Vec::new();
    // A process that is reparented during the scan may be met twice.
    let mut met = BTreeSet::new();
    let mut open: VecDeque<u32> = children(root).into();
    while let Some(pid) = open.pop_front() {
        if !met.insert(pid) {
            continue;
        }
        let Some(stat) = stat(pid).filter(|stat| !stat.has_ended()) else {
            continue;
        };
        let started = stat.started;
        found.push(Member { pid, started });
        open.extend(children(pid));
    }
    found
}

/// Those of them that are alive.
pub(crate) fn living(pids: Vec<u32>) -> Vec<Member> {
    let member = |pid| {
        let stat = stat(pid).filter(|stat| !stat.has_ended())?;
        let started = stat.started;
        Some(Member { pid, started })
    };
    pids.into_iter().filter_map(member).collect()
}

/// Its parent, its grandparent, and so on.
pub(crate) fn ancestors(pid: u32) -> impl Iterator<Item = u32> {
    let parent = |pid: &u32| Some(stat(*pid)?.parent).filter(|parent| *parent != 0);
    std::iter::successors(Some(pid), parent)
        .skip(1)
        .take(GENERATIONS)
}

/// Whether a process has the name of a keeper.
pub(crate) fn is_keeper(pid: u32) -> bool {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_ascii_end() == NAME.to_bytes()
}

pub(crate) fn stat(pid: u32) -> Option<Stat> {
    Stat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The children of all its threads, including those that have ended.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return children;
    };
    for thread in threads.flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let numbers = text.split_ascii_whitespace();
        children.extend(numbers.filter_map(|number| number.parse::<u32>().ok()));
    }
    children
}
