//! What `fdguard-process` guarantees, shown on real processes.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a broken precondition must stop the test at that line"
)]

mod suite;
