//! The supervisor's pages: `/metrics` for Prometheus and `/health` for load balancers.
//!
//! The loop fills a [`State`], [`families`] and [`health`] format it, purely, and [`Server`] serves
//! it. No client can block the loop: connections are few, headers are short, everything has a
//! deadline and is nonblocking.

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

pub use fdguard_core::bearer::Token;
pub use server::Server;
pub use state::{Host, Own, Process, Service, State, Target};
pub use token::{Source, read as read_token};
