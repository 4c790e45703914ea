//! The loop that keeps a service up within a budget of descriptors. One thread, `poll`, no waiting anywhere else.
//!
//! [`turn`] is how the parts take part in the loop: each says what it waits for, and is asked again when something may have happened.

pub mod budget;
pub mod config;
pub mod event;
pub mod health;
pub mod meter;
pub mod policy;
pub mod relief;
mod service;
pub mod supervisor;
pub mod port;
pub mod metrics;
pub mod output;
pub mod turn;
pub mod unit;
