//! What this crate hands to other programs, and takes from them.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests, outside of the test functions"
)]

mod suite;
