//! placeholder
use fdguard_core::rule::Settings;
use serde::Serialize;

use super::proof::Proof;
use crate::cli::CheckArgs;

/// How a server was exercised.
#[derive(Debug, Serialize)]
pub(super) struct Exercised {
    pub(super) cycles: u32,
    pub(super) concurrency: u32,
}

pub(super) fn run(_: &CheckArgs, _: &str, _: &Settings) -> anyhow::Result<Proof> {
    anyhow::bail!("not yet")
}
