#![no_main]
//! `/proc/locks`: one lock a line at most.

use fdguard_proc::locks::locks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let found = locks(bytes);
    assert!(found.len() <= lines);
    assert!(
        found
            .iter()
            .all(|lock| lock.pid != Some(0) && !lock.kind.is_empty())
    );
});
