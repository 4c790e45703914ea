//! `fdguard run`: keep this service alive within a budget of descriptors.

use crate::cli::RunArgs;

mod once;
mod prevented;

/// Runs the verb.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<u8> {
    if args.once {
        return once::run(args);
    }
    anyhow::bail!("only --once so far")
}
