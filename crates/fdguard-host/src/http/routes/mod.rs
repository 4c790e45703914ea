//! One file per group of routes.

pub(super) mod archive;
pub(super) mod calls;
pub(super) mod clients;
pub(super) mod exec;
pub(super) mod health;
pub(super) mod metrics;
mod pieces;
pub(super) mod scopes;
pub(super) mod sessions;
