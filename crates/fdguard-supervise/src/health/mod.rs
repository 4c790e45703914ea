//! Whether a service is ready, and whether it still works.
//!
//! A [`Spec`] is a check as it is written, a [`Check`] is the same at work: it probes when it is time, gives each probe a deadline,
//! counts answers in a row ([`series`]) and tells changes. What a change means is the loop's: a failing liveness check restarts, a
//! failing readiness check does not.
//!
//! Probes are steps of the one loop. No probe waits, none uses a proxy, each ends at its deadline, and dropping one at any moment
//! leaves nothing behind: a connection is one descriptor, a command is a tree of processes that ends with all it started.

pub mod accept;
mod check;
mod command;
mod dial;
mod get;
pub mod queue;
mod response;
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
pub use series::{HealthChange, HealthState, Timing};
pub use spec::{BodyPattern, CheckSpec, Kind, Page};
pub use target::Endpoint;
pub use url::Url;
