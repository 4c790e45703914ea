//! Tests on real programs.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "helpers of tests, outside of the test functions"
)]

mod suite;
