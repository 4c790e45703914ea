//! Tests of the victims and of the harness.

#![expect(
    clippy::unwrap_used,
    reason = "tests panic, so that the line is kept; helpers of tests too"
)]

mod suite;
