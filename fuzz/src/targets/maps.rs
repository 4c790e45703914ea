//! `/proc/PID/maps`: a file's name may hold anything.

use fdguard_proc::maps::{mappings, private_memory, regions, unescaped};

pub(crate) fn run(bytes: &[u8]) {
    for mapping in mappings(bytes) {
        assert!(mapping.ino != 0 && mapping.path.starts_with(b"/"));
        assert!(unescaped(mapping.path).len() <= mapping.path.len());
    }
    for region in private_memory(bytes) {
        assert!(region.start < region.end && region.ino == 0);
    }
    // No region is both.
    let counts = (mappings(bytes).count(), private_memory(bytes).count());
    assert!(counts.0 + counts.1 <= regions(bytes).count());
}
