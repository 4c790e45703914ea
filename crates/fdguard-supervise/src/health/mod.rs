//! Readiness and liveness checks.
//!
//! A [`CheckSpec`] is a check as configured, a [`HealthCheck`] is the running check: it probes on
//! schedule, gives each probe a deadline, counts results in a row ([`series`]) and returns changes.
//! The loop decides what a change means: a failing liveness check restarts the service, a failing
//! readiness check does not.
//!
//! Probes are steps of the one loop. No probe blocks or uses a proxy, each ends at its deadline,
//! and dropping one at any moment leaves nothing behind: a connection is one descriptor, a command
//! is a process tree that ends with everything it started.

pub mod accept;
mod check;
mod command;
mod dial;
mod get;
pub mod queue;
pub(crate) mod response;
pub mod series;
pub mod spec;
mod table;
mod target;
mod url;

#[cfg(test)]
mod exec_tests;
#[cfg(test)]
mod spec_tests;
#[cfg(test)]
mod tests;

pub use accept::Listener;
pub use check::{CheckInputs, HealthCheck, HeartbeatPipe};
pub use command::CommandContext;
#[cfg(feature = "fuzzing")]
pub use response::fuzz_response;
pub use series::{HealthChange, HealthState, Timing};
pub use spec::{BodyPattern, CheckSpec, Kind, Page};
pub use target::Endpoint;
pub use url::Url;
