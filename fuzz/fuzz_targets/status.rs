#![no_main]
//! `/proc/PID/status`.

use fdguard_proc::status::{ProcStatus, resident};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let status = ProcStatus::parse(bytes);
    assert!(status.name.len() <= bytes.len());
    assert!(status.unescaped_name().len() <= status.name.len());
    assert!(resident(bytes).is_none_or(|size| size % 1024 == 0));
    assert_eq!(status, ProcStatus::parse(bytes));
});
