#![no_main]
//! `/proc/PID/mountinfo`.

use fdguard_proc::mountinfo::local_mounts;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(local_mounts(bytes).count() <= lines);
});
