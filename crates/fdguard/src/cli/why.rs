//! Arguments of `fdguard why`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fdguard_core::Pid;
use fdguard_core::units::parse_positive_duration;

use super::GroupArgs;
use super::select::{number_completer, parse_pid};

/// Show which object of a Python, Java or Node program holds each descriptor, and what keeps it
/// alive; for other programs the owner (Go) or the line that used it last (C, Rust).
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard why 1234                a program that fdguard traces, or any other: it is attached to
  fdguard why 1234 --wait 60s     wait longer for new descriptors
  fdguard why 1234 --json
  fdguard why --container web     the only process of a container, unit or pod
Python is stopped for a few milliseconds: a copy of it is made, and the copy is looked at. A JVM is
stopped for about a second per million objects; more than 500,000 need --force. Node copies itself,
through its inspector; more than 50 MB of heap need --force.
Exit codes: 0 answered, 2 usage error, 3 could not look.")]
pub struct WhyArgs {
    /// The process.
    #[arg(value_name = "PID", value_parser = parse_pid, add = number_completer(), conflicts_with = "GroupArgs", required_unless_present = "GroupArgs")]
    pub pid: Option<Pid>,
    /// The group of the process.
    #[command(flatten)]
    pub groups: GroupArgs,
    /// How long to wait for new descriptors, if plain numbers are held: they need a second walk.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    pub wait: Duration,
    /// Walk a large heap of Java or Node, too; the expected stop of a JVM is printed first.
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Write the answer to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
