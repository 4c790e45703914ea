//! Arguments of `fdguard top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fdguard_core::units::parse_duration;

use super::GroupArgs;

/// Show which processes are growing or near a descriptor limit.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard top                live view; press ? for the keys
  fdguard top --once         one table
  fdguard top --once --json  one JSON document, for scripts
  fdguard top --unit nginx   the processes of a unit, container or pod")]
pub struct TopArgs {
    /// Print one table and exit.
    #[arg(long)]
    pub once: bool,
    /// Print one JSON document and exit.
    #[arg(long)]
    pub json: bool,
    /// Refresh interval.
    #[arg(short, long, value_name = "TIME", default_value = "1", value_parser = parse_interval)]
    pub interval: Duration,
    /// Show only processes whose command or PID contains TEXT.
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Groups of processes.
    #[command(flatten)]
    pub groups: GroupArgs,
    /// With --once or --json: report the peak of every process, even if there are more than 1000.
    #[arg(long)]
    pub peaks: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    let is_fit = (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&interval);
    is_fit
        .then_some(interval)
        .ok_or_else(|| "an interval must be 0.1 to 3600 seconds".to_owned())
}
