//! The supervisor's pages: `/metrics` for Prometheus and `/health` for load balancers.
//!
//! The loop fills a [`MetricsState`], [`families`] and [`health`] format it, purely, and
//! [`MetricsServer`] serves it. No client can block the loop: connections are few, headers are
//! short, everything has a deadline and is nonblocking.

pub mod families;
pub mod health;
mod request;
mod server;
mod state;
mod token;

#[cfg(test)]
mod rules_tests;
#[cfg(test)]
mod server_tests;
#[cfg(test)]
mod tests;

pub use fdguard_core::bearer::BearerToken;
#[cfg(feature = "fuzzing")]
pub use request::fuzz_request;
pub use server::MetricsServer;
pub use state::{
    HostMetrics, MetricsState, ProcessMetrics, ServiceMetrics, SupervisorMetrics, TargetMetrics,
};
pub use token::{TokenSource, read as read_token};
