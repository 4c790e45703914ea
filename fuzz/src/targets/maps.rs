//! `/proc/PID/maps`: a file's name may hold anything.

use fdguard_proc::maps::{mappings, unescaped};

pub(crate) fn run(bytes: &[u8]) {
    for mapping in mappings(bytes) {
        assert!(mapping.ino != 0 && mapping.path.starts_with(b"/"));
        assert!(unescaped(mapping.path).len() <= mapping.path.len());
    }
}
