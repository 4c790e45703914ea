//! Arguments of `fdguard top`.

use std::path::PathBuf;

use clap::Args;

/// Show which processes are growing or near a descriptor limit.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard top                live view; press ? for the keys
  fdguard top --once         one table
  fdguard top --once --json  one JSON document, for scripts")]
pub struct TopArgs {
    /// Print one table and exit.
    #[arg(long)]
    pub once: bool,
    /// Print one JSON document and exit.
    #[arg(long)]
    pub json: bool,
    /// Refresh interval in seconds.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    pub interval: f64,
    /// Show only processes whose command or PID contains TEXT.
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// With --once or --json: report the peak of every process, even if there are more than 1000.
    #[arg(long)]
    pub peaks: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("an interval must be 0.1 to 3600 seconds".to_owned()),
    }
}
