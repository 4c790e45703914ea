#![no_main]
//! `/proc/PID/comm`.

use fdguard_proc::comm::name;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert!(bytes.starts_with(name(bytes)) && bytes.len() - name(bytes).len() <= 1);
});
