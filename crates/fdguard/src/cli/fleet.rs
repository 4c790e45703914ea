//! Arguments of `fdguard fleet`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fdguard_core::units::parse_positive_duration;
use fdguard_serve::ReceiverUrl;
use fdguard_serve::budget::parse_share;

/// Show the services of all hosts, from Prometheus or VictoriaMetrics.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard fleet --from http://prometheus:9090                which service runs out next, on which host?
  fdguard fleet --from http://prometheus:9090 service web.service    the deploy or the machine?
  fdguard fleet --from http://vm:8428 check --max-usage 90%  for cron and CI
The hosts run `fdguard serve`, and the server scrapes their /metrics or receives their pushes.
Exit codes: 0 nothing found; 1 check found a problem, or the service grows on a host; 2 usage error;
3 the server did not answer, no host reports, or check could not see every host.")]
pub struct FleetArgs {
    /// What to show.
    #[arg(value_name = "WHAT", default_value = "top")]
    pub what: FleetWhat,
    /// The service, for `service`.
    #[arg(value_name = "SERVICE")]
    pub service: Option<String>,
    /// Base address of a server with the Prometheus HTTP API.
    #[arg(long, value_name = "URL", value_parser = ReceiverUrl::parse)]
    pub from: ReceiverUrl,
    /// File with a bearer token for it.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// File with headers that it needs, one `Name: value` per line, such as `X-Scope-OrgID: shop`
    /// for a tenant of Mimir.
    #[arg(long, value_name = "FILE")]
    pub header_file: Option<PathBuf>,
    /// Label that names a host.
    #[arg(long, value_name = "LABEL", default_value = "instance", value_parser = label)]
    pub host_label: String,
    /// Longest time for each query.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    pub timeout: Duration,
    /// Order of `top`.
    #[arg(long, value_name = "ORDER", default_value = "time-left")]
    pub sort: FleetSort,
    /// Maximum number of rows of `top`.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = rows)]
    pub limit: usize,
    /// Lowest severity that fails `check`.
    #[arg(help_heading = "Check", long, value_name = "SEVERITY", value_parser = ["warning", "critical"], default_value = "warning")]
    pub fail_on: String,
    /// Fail `check` if a service uses this share of its limit, such as 90%.
    #[arg(help_heading = "Check", long, value_name = "PERCENT", value_parser = parse_share)]
    pub max_usage: Option<f64>,
    /// Fail `check` if a service reaches a limit within this time.
    #[arg(help_heading = "Check", long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub min_time_left: Option<Duration>,
    /// Pass `check` although hosts stopped reporting within the last hour.
    #[arg(help_heading = "Check", long)]
    pub allow_missing: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// What `fdguard fleet` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FleetWhat {
    /// The services nearest to a limit, on all hosts.
    Top,
    /// One service on all hosts.
    Service,
    /// Problems on any host, with an exit code.
    Check,
}

/// The order of `top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FleetSort {
    /// The least time to a limit first, then the fullest.
    TimeLeft,
    /// The fastest growth first.
    Growth,
    /// The fullest first.
    Usage,
    /// The worst verdict first.
    Verdict,
    /// The most descriptors first.
    Count,
}

fn rows(text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (1..=1000).contains(number));
    number.ok_or_else(|| "must be a number from 1 to 1000".to_owned())
}

/// The name of a label of Prometheus: it goes into expressions as it is.
pub(super) fn label(text: &str) -> Result<String, String> {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_fit = text.starts_with(is_first)
        && text.chars().all(|c| is_first(c) || c.is_ascii_digit())
        && !text.starts_with("__");
    is_fit
        .then(|| text.to_owned())
        .ok_or_else(|| "must be the name of a label, such as instance".to_owned())
}
