//! Arguments of `fdguard drill`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fdguard_core::units::parse_positive_duration;

/// Test a service: kill -9, full table, taken port, orphan.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard drill -- python3 server.py
  fdguard drill --ready tcp:8787 --within 2s -- ./server
Drill starts the service several times under `fdguard run`, kills it and stops it. Do not drill a
service that is in use.
Exit codes: 0 all tests passed, 1 a test failed, 2 usage error, 3 the service could not be started.")]
pub struct DrillArgs {
    /// Readiness check, as for `run`; by default the service is ready at once.
    #[arg(long, value_name = "CHECK")]
    pub ready: Option<String>,
    /// Socket to bind and pass to the service, as for `run`; may be repeated.
    #[arg(long, value_name = "SOCKET")]
    pub listen: Vec<String>,
    /// Time limit to recover after kill -9.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_positive_duration)]
    pub within: Duration,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Program to run, with its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}
