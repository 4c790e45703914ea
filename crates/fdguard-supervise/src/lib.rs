//! The loop that keeps a service up within a budget of descriptors. One thread, `poll`, no waiting
//! anywhere else.
//!
//! [`poll`] is how the components take part in the loop: each registers what it waits for, and is
//! polled again when something may have happened.

pub mod budget;
mod child;
pub mod config;
pub mod drain;
pub mod event;
pub mod evidence;
pub mod health;
mod http_head;
pub mod inject;
pub mod lifecycle;
pub mod limit;
pub mod meter;
pub mod metrics;
pub mod output;
pub mod poll;
pub mod port;
pub mod report;
mod service;
pub mod supervisor;
pub mod trim;
