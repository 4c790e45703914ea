//! Tests on real programs.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a broken precondition must stop the test at that line"
)]

mod suite;
