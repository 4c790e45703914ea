#![no_main]
//! `/proc/PID/status`.

use fdguard_probe::parse::status::Status;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let status = Status::parse(bytes);
    assert!(status.name.len() <= bytes.len());
    assert_eq!(status, Status::parse(bytes));
});
