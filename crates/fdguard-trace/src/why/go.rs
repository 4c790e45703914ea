//! The owners of descriptors in a Go program, read from its memory while it runs. See decision 197.

use std::path::Path;
use std::time::Duration;

use fdguard_proc::maps;
use fdguard_why::{FirstWalk, find_go_owners, go_answers};

use super::memory::ProcessMemory;
use super::{HeapAnswer, HeapRefusal};
use crate::go;

/// The most that is read.
const MOST: u64 = 16 << 30;

/// Whether a process runs a Go program.
pub(super) fn is_go(pid: u32) -> bool {
    go::is_go(Path::new(&format!("/proc/{pid}/exe")))
}

/// Answers for groups of descriptors. Nothing is stopped: a number and its poller agree only if
/// both are in use.
pub(super) fn ask(pid: u32, groups: &[Vec<u32>]) -> Result<HeapAnswer, HeapRefusal> {
    let memory = ProcessMemory::open(pid).map_err(|error| {
        HeapRefusal::new(format!("cannot read its memory ({error})"), "use sudo")
    })?;
    let mut fds: Vec<u32> = groups.iter().flatten().copied().collect();
    fds.sort_unstable();
    let owners = find_go_owners(&memory, &heap(pid), &fds);
    Ok(HeapAnswer {
        whys: go_answers(groups, &owners),
        stop: Duration::ZERO,
        objects: owners.len(),
        unreachable: None,
        seen: FirstWalk::default(),
    })
}

/// Private memory without a file: the heap is in it, at an address that newer versions choose by
/// chance.
fn heap(pid: u32) -> Vec<(u64, u64)> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut left = MOST;
    let writable = maps::private_memory(&maps).filter(|region| region.rights == b"rw-p");
    let ranges = writable.map(|region| {
        let end = region.end.min(region.start.saturating_add(left));
        left -= end - region.start;
        (region.start, end)
    });
    ranges.collect()
}
