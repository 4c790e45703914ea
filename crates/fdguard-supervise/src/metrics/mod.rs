//! What others can see of a supervisor: `/metrics` for Prometheus and `/health` for load balancers.
//!
//! The loop fills a [`State`], [`families`] and [`health`] make text of it, purely, and [`Server`] hands it out. Nobody can hold the
//! loop up: connections are few, heads are short, everything has a deadline, and all of it is nonblocking.

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
pub use server::MetricsServer;
pub use state::{
    HostMetrics, MetricsState, ProcessMetrics, ServiceMetrics, SupervisorMetrics, TargetMetrics,
};
pub use token::{TokenSource, read as read_token};
