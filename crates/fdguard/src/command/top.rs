//! `fdguard top`: which processes are near a wall, or growing?

use crate::cli::TopArgs;

pub(super) fn run(_args: &TopArgs) -> anyhow::Result<u8> {
    anyhow::bail!("top comes next")
}
