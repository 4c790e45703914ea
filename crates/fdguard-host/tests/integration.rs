//! Tests on real programs.

#![expect(
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a broken precondition must stop the test at that line, and what is skipped is said"
)]

mod suite;
