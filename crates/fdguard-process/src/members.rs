//! The living processes of a tree, as seen by its owner.

use std::collections::{BTreeSet, VecDeque};
use std::fs;

use fdguard_proc::process::{children, stat};
use fdguard_proc::{ProcKey, comm};

use crate::keeper::NAME;

/// Longer ancestries are not followed.
const GENERATIONS: usize = 64;

/// The living descendants of a process, nearest first.
pub(crate) fn below(root: u32) -> Vec<ProcKey> {
    let mut found = Vec::new();
    // A process that is reparented during the scan may be met twice.
    let mut met = BTreeSet::new();
    let mut open: VecDeque<u32> = children(root).into();
    while let Some(pid) = open.pop_front() {
        if !met.insert(pid) {
            continue;
        }
        let Some(member) = member(pid) else {
            continue;
        };
        found.push(member);
        open.extend(children(pid));
    }
    found
}

/// Those of them that are alive.
pub(crate) fn living(pids: Vec<u32>) -> Vec<ProcKey> {
    pids.into_iter().filter_map(member).collect()
}

/// The process that has this pid, if it is alive.
fn member(pid: u32) -> Option<ProcKey> {
    stat(pid, |stat| (!stat.has_ended()).then(|| stat.key(pid))).ok()?
}

/// Its parent, its grandparent, and so on.
pub(crate) fn ancestors(pid: u32) -> impl Iterator<Item = u32> {
    let parent = |pid: &u32| {
        stat(*pid, |stat| stat.ppid)
            .ok()
            .filter(|parent| *parent != 0)
    };
    std::iter::successors(Some(pid), parent)
        .skip(1)
        .take(GENERATIONS)
}

/// Whether a process has the name of a keeper.
pub(crate) fn is_keeper(pid: u32) -> bool {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    comm::name(&name) == NAME.to_bytes()
}
