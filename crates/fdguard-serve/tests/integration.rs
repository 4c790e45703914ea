//! A serving fdguard, from outside: over HTTP, its log, its files and its messages.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod suite;
