//! Arguments of `fdguard history`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fdguard_core::units::parse_positive_duration;

/// Show when a service began to grow, and after what.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard history                          list the services of the history
  fdguard history web.service              when did it begin, and after which restart or deploy?
  fdguard history 'pod shop/cart' --since 2d --json
Exit codes: 0 nothing grew; 1 the service grew or has findings; 2 usage error; 3 no history, or no
such service.")]
pub struct HistoryArgs {
    /// The service, with or without its kind: `web.service`, `unit web.service`. Without one:
    /// list all services.
    #[arg(value_name = "SERVICE")]
    pub service: Option<String>,
    /// Only the last TIME.
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub since: Option<Duration>,
    /// State directory of the serving fdguard.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
