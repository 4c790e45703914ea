//! `run --once`: the program to its end, no restart.

use crate::cli::RunArgs;

/// Runs the program and gives its status.
pub(super) fn run(_args: &RunArgs) -> anyhow::Result<u8> {
    anyhow::bail!("not yet")
}
