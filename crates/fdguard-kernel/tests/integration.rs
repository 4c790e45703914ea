//! Real programs, reported by the running kernel.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of the test functions"
)]

mod suite;
