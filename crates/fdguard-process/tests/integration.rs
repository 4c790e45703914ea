//! What this crate hands to other programs, and takes from them.
//! What `fdguard-process` promises, shown on real processes.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a broken precondition must stop the test at that line"
)]
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests, outside of the test functions"
)]

mod suite;
