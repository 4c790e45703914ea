//! Flags of `run`.

use std::ffi::OsString;

use clap::Args;

use super::protect::ProtectArgs;

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Run the program to its end and pass on its status: no restart.
    #[arg(long)]
    pub once: bool,
    /// Protection.
    #[command(flatten)]
    pub protect: ProtectArgs,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}
