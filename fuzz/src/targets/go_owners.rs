//! The memory of a Go program, in which owners of descriptors are looked for: any word of it may be
//! anything, and pointers lead back into it.

use fdguard_why::{Memory, find_go_owners, go_answers};

/// Numbers that are asked for.
const FDS: std::ops::Range<u32> = 0..64;
/// Where the memory begins: small numbers are no pointers.
const BASE: u64 = 8192;

struct SmallMemory<'a>(&'a [u8]);

impl Memory for SmallMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let start = address.checked_sub(BASE);
        let Some(start) = start.and_then(|start| usize::try_from(start).ok()) else {
            return false;
        };
        let end = start.saturating_add(into.len());
        let Some(bytes) = self.0.get(start..end) else {
            return false;
        };
        into.copy_from_slice(bytes);
        true
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let fds: Vec<u32> = FDS.collect();
    let (middle, end) = (BASE + bytes.len() as u64 / 2, BASE + bytes.len() as u64);
    let ranges = [(BASE, middle), (middle, end)];
    let owners = find_go_owners(&SmallMemory(bytes), &ranges, &fds);
    assert!(owners.keys().all(|fd| FDS.contains(fd)));
    for why in go_answers(&[fds], &owners) {
        let count: usize = why.chains.iter().map(|chain| chain.count).sum();
        assert_eq!(count, FDS.len());
    }
}
