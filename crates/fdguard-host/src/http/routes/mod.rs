//! One file for each group of routes.

pub(super) mod clients;
pub(super) mod exec;
pub(super) mod health;
pub(super) mod metrics;
mod pieces;
pub(super) mod sessions;
