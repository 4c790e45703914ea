//! Arguments of `fdguard drill`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration::parse_positive;

/// Does my service survive kill -9, a full table, a held port, an orphan?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard drill -- python3 server.py
  fdguard drill --ready tcp:8787 --within 2s -- ./server
The service is started several times below `fdguard run`, killed, and ended again. Do not drill a service that
is in use. Exit codes: 0 all passed, 1 something failed, 2 wrong usage, 3 it could not be started.")]
pub struct DrillArgs {
    /// When it is ready, as for `run`; at once when absent.
    #[arg(long, value_name = "CHECK")]
    pub ready: Option<String>,
    /// A socket that `run` binds for it, as for `run`; may be repeated.
    #[arg(long, value_name = "SOCKET")]
    pub listen: Vec<String>,
    /// How long it may take to be back after kill -9.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_positive)]
    pub within: Duration,
    /// One JSON document.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}
