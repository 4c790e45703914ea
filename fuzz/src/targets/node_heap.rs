//! What the copy of a Node program writes: lines, then a heap snapshot. Any of it may be anything.

use std::collections::{BTreeMap, BTreeSet};

use fdguard_why::NodeHeap;

/// Numbers that are asked for.
const FDS: std::ops::Range<u32> = 0..64;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(heap) = NodeHeap::parse(bytes) else {
        return;
    };
    let groups = [FDS.collect::<Vec<u32>>()];
    let files: BTreeSet<u32> = FDS.collect();
    let first = heap.first_walk(BTreeMap::new());
    for first in [None, Some(&first)] {
        for why in heap.answer(&groups, &files, first) {
            let count: usize = why.chains.iter().map(|chain| chain.count).sum();
            assert!(count <= groups[0].len() * 2, "{why:?}");
        }
    }
}
