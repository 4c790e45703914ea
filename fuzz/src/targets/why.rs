//! The heap of a copied process: any word of its memory may be anything. Every address can be read,
//! so that pointers lead somewhere.

use std::collections::BTreeMap;

use fdguard_why::{Graph, Heap, Interpreter, Layout, Memory, Reader, find_generations};
use fdguard_wire::WalkNode;

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
        // Some of it cannot be read.
        address % 61 != 7
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((head, memory)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let Some(layout) = Layout::of(9 + u16::from(head[0] % 5)) else {
        return;
    };
    if memory.is_empty() {
        return;
    }
    let (nodes, _) = memory.as_chunks::<{ WalkNode::SIZE }>();
    let count = usize::from(head[1]).min(nodes.len());
    let nodes: Vec<WalkNode> = nodes.iter().take(count).map(WalkNode::read).collect();
    let (edges, _) = memory.as_chunks::<8>();
    let edges: Vec<u64> = edges.iter().map(|edge| u64::from_le_bytes(*edge)).collect();
    let memory = AnyMemory(memory);
    let reader = Reader::new(&memory, layout);
    let generations = find_generations(&reader, 4096).unwrap_or(4096);
    let interpreter = Interpreter {
        layout,
        address: 4096,
        generations,
    };
    let graph = Graph::new(&nodes, &edges);
    let heap = Heap::new(&memory, &interpreter, graph, &[1, 2, 3]);
    assert!(heap.garbage_count() <= heap.graph.len());
    let groups = [FDS.collect::<Vec<u32>>()];
    let paths: BTreeMap<u32, String> = FDS.map(|fd| (fd, "/x".to_owned())).collect();
    let first = heap.first_walk(BTreeMap::new());
    for why in heap.answer(&groups, &paths, Some(&first)) {
        let count: usize = why.chains.iter().map(|chain| chain.count).sum();
        assert!(count <= groups[0].len() * 2);
    }
}
