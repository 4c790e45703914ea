//! Arguments of `fdguard top`.

use std::path::PathBuf;

use clap::Args;

/// Which processes on this host are near a wall, or growing?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard top                live view; ? shows the keys
  fdguard top --once         one table
  fdguard top --once --json  one document, for scripts")]
pub struct TopArgs {
    /// Print one table and end.
    #[arg(long)]
    pub once: bool,
    /// Print one JSON document and end.
    #[arg(long)]
    pub json: bool,
    /// Seconds between looks.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    pub interval: f64,
    /// Show only processes whose command or number contains TEXT.
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// With --once or --json: the past peak of every process, also with more than a thousand of them.
    #[arg(long)]
    pub peaks: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("an interval is 0.1 to 3600 seconds".to_owned()),
    }
}
