//! The victims keep their word, and the harness keeps its own.

#![expect(
    clippy::unwrap_used,
    reason = "tests panic, so that the line is kept; helpers of tests too"
)]

mod suite;
