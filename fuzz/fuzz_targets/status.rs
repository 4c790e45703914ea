#![no_main]
//! `/proc/PID/status`.

use fdguard_proc::status::ProcStatus;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let status = ProcStatus::parse(bytes);
    assert!(status.name.len() <= bytes.len());
    assert_eq!(status, ProcStatus::parse(bytes));
});
