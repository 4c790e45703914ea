#![no_main]
//! `/proc/PID/maps`: a file's name may hold anything.

use fdguard_proc::maps::{mappings, unescaped};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for mapping in mappings(bytes) {
        assert!(mapping.ino != 0 && mapping.path.starts_with(b"/"));
        assert!(unescaped(mapping.path).len() <= mapping.path.len());
    }
});
