//! Tests on real programs.

#![expect(
    clippy::unwrap_used,
    reason = "a broken precondition must stop the test at that line"
)]

mod suite;
