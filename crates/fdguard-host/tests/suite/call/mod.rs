//! Calls against real servers in this process.
#![expect(
    clippy::unwrap_used,
    reason = "a broken precondition must stop the test at that line"
)]

mod abort;
mod bad_peers;
mod keep;
mod kit;
mod peer;
mod race;
mod rules;
mod wake;
mod wrong_closer;
