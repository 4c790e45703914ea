//! What a thread of fdguard's library leaves in a JVM: lists of tags and references, and names. Any
//! of it may be anything.
//!
//! The first bytes say how many nodes, references, roots and numbers follow, up to which tag
//! classes go, and whether the records are whole. What is left are the names.

use fdguard_why::{JavaHeap, JavaRecords, Memory};
use fdguard_wire::{JavaEdge, JavaNumber, JavaRoot};

/// Numbers that are asked for.
const FDS: std::ops::Range<u32> = 0..64;

struct AnyMemory<'a>(&'a [u8]);

impl Memory for AnyMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let Ok(start) = usize::try_from(address % self.0.len() as u64) else {
            return false;
        };
        for (byte, place) in self.0.iter().cycle().skip(start).zip(into) {
            *place = *byte;
        }
        true
    }
}

/// Takes so many records from the front.
fn records<'a, const SIZE: usize>(bytes: &mut &'a [u8], count: u8) -> &'a [[u8; SIZE]] {
    let (all, _) = bytes.as_chunks::<SIZE>();
    let (taken, _) = all.split_at(usize::from(count).min(all.len()));
    *bytes = bytes.get(taken.len() * SIZE..).unwrap_or_default();
    taken
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((&[nodes, edges, roots, numbers, classes, partial], mut rest)) =
        bytes.split_first_chunk::<6>()
    else {
        return;
    };
    let nodes = records::<4>(&mut rest, nodes).iter();
    let edges = records::<{ JavaEdge::SIZE }>(&mut rest, edges).iter();
    let roots = records::<{ JavaRoot::SIZE }>(&mut rest, roots).iter();
    let numbers = records::<{ JavaNumber::SIZE }>(&mut rest, numbers).iter();
    let records = JavaRecords {
        nodes: nodes.map(|node| u32::from_le_bytes(*node)).collect(),
        edges: edges.map(JavaEdge::read).collect(),
        roots: roots.map(JavaRoot::read).collect(),
        numbers: numbers.map(JavaNumber::read).collect(),
        text: rest.to_vec(),
        classes: classes.into(),
        is_partial: partial % 2 == 1,
    };
    let count = records.nodes.len();
    let heap = JavaHeap::new(records);
    assert!(heap.object_count() <= count);
    let groups = [FDS.collect::<Vec<u32>>()];
    for why in heap.answer(&groups, &AnyMemory(bytes)) {
        let count: usize = why.chains.iter().map(|chain| chain.count).sum();
        assert_eq!(count, FDS.len(), "{why:?}");
    }
}
