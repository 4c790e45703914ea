//! Findings as messages to other systems: Alertmanager, and a webhook with a signed body.
//!
//! The loop hands a message over and never waits. Each receiver has a bounded queue and retries
//! with a growing pause; what is given up is counted.

pub(crate) mod alertmanager;
pub(crate) mod client;
pub(crate) mod outbox;
pub(crate) mod sender;
pub(crate) mod signature;
pub(crate) mod webhook;
