//! Databases that the tests damage in every known way, and processes that hold them.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of the test functions"
)]

mod suite;
