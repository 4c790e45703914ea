//! Tests the probe against processes that know what they hold.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "helpers of tests, outside of the test functions"
)]

mod suite;
