//! Arguments of `fdguard history`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fdguard_core::units::{parse_duration, parse_positive_duration};
use jiff::{SignedDuration, Timestamp};

/// Show when a service began to grow, and after what.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard history                          list the services of the history
  fdguard history web.service              when did it begin, and after which restart or deploy?
  fdguard history 'pod shop/cart' --since 2d --json
  fdguard history web --at 2h              what did it hold two hours ago?
  fdguard history web --at 2h --at 5m      what changed between these two moments?
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
    /// What the service held at TIME (`2026-11-18T09:30:00Z`, or `2h` for two hours ago). Give it
    /// twice to see what changed in between.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, requires = "service",
        conflicts_with = "since")]
    pub at: Vec<Timestamp>,
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

/// A time of day, or a duration before now.
fn parse_moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let ago = parse_duration(text).ok();
    let ago = ago.and_then(|ago| SignedDuration::try_from(ago).ok());
    let at = ago.and_then(|ago| Timestamp::now().checked_sub(ago).ok());
    at.ok_or_else(|| {
        "expected a time like 2026-11-18T09:30:00Z, or 2h for two hours ago".to_owned()
    })
}
