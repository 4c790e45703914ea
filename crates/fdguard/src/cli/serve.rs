//! Arguments of `fdguard serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fdguard_core::units::{parse_positive_duration, parse_size};
use fdguard_serve::ReceiverUrl;
use fdguard_serve::budget::parse_share;

use super::SettingsArgs;

/// Watch the whole host all the time: metrics, findings, history (HTTP).
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard serve                                   127.0.0.1:9187; token in a private file
  fdguard serve --public-metrics                  Prometheus scrapes /metrics without a token
  fdguard serve --alertmanager http://127.0.0.1:9093
  fdguard serve --webhook https://hooks.example/fd --webhook-secret-file ./secret
  fdguard serve --every 1s --budget 2% --no-history
Signals: TERM and INT stop it; the history is complete then.
Exit codes: 0 stopped on request; 2 usage error, or the address is in use; 3 could not start.")]
pub struct ServeArgs {
    /// Time between two scans of the host.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = every)]
    pub every: Duration,
    /// Share of one processor core for scans and looks. Evidence and traces come on top, once a day
    /// at most for each service.
    #[arg(long, value_name = "PERCENT", default_value = "0.5%", value_parser = parse_share)]
    pub budget: f64,
    /// Maximum number of processes under watch.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = at_least_one)]
    pub max_watched: usize,
    /// A finding is resolved when it was not seen for this long.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_positive_duration)]
    pub resolve_after: Duration,
    /// Name of this host in alerts; by default that of the system.
    #[arg(long, value_name = "NAME")]
    pub host_name: Option<String>,
    /// Thresholds.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// The HTTP server.
    #[command(flatten)]
    pub web: WebArgs,
    /// History and evidence.
    #[command(flatten)]
    pub history: KeepArgs,
    /// Receivers of findings.
    #[command(flatten)]
    pub delivery: DeliveryArgs,
    /// Metrics of this host to others, and of all hosts to the page.
    #[command(flatten)]
    pub fleet: ServeFleetArgs,
    /// Traces of confirmed leaks.
    #[command(flatten)]
    pub trace: ServeTraceArgs,
    /// Format of the event log on stderr.
    #[arg(help_heading = "Output", long, value_name = "FORMAT", value_parser = ["text", "json"], default_value = "text")]
    pub log_format: String,
}

/// The HTTP server.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Access")]
pub struct WebArgs {
    /// Listen address: `HOST:PORT` or `unix:PATH`; may be repeated.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<String>,
    /// Read the token for viewing from this file, or create it there.
    #[arg(long, value_name = "FILE", conflicts_with = "no_token")]
    pub token_file: Option<PathBuf>,
    /// Let every client view that can connect; only for local addresses and Unix sockets.
    #[arg(long)]
    pub no_token: bool,
    /// Let clients with the token in this file act (suppress findings); it is created if missing.
    #[arg(long, value_name = "FILE")]
    pub act_token_file: Option<PathBuf>,
    /// Serve /metrics without a token.
    #[arg(long)]
    pub public_metrics: bool,
    /// Certificate chain in PEM form: serve HTTPS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate in PEM form.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Also listen on addresses that other machines can reach.
    #[arg(long)]
    pub allow_remote: bool,
    /// Accept this name in the Host header; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
    /// Accept requests from this web origin, such as `https://example.org`; may be repeated.
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<String>,
    /// Permissions of Unix sockets.
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = mode)]
    pub mode: u32,
    /// Maximum number of connections.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = at_least_one)]
    pub max_connections: usize,
    /// Maximum number of series about services and processes in /metrics.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = series)]
    pub max_series: usize,
}

/// History and evidence.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "History")]
pub struct KeepArgs {
    /// Directory of history and evidence.
    ///
    /// Default: /var/lib/fdguard for root, else fdguard in the user's state directory.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Keep the history for this long.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse_positive_duration)]
    pub keep: Duration,
    /// Maximum size of the history and of what is beside it; the oldest rows and files are removed.
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = disk)]
    pub max_disk: u64,
    /// At most one sample of a service in this time.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_positive_duration)]
    pub sample_every: Duration,
    /// Keep no history.
    #[arg(long)]
    pub no_history: bool,
    /// Keep no evidence bundles of critical findings.
    #[arg(long)]
    pub no_evidence: bool,
}

/// Receivers of findings.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Receivers")]
pub struct DeliveryArgs {
    /// Send findings to this Alertmanager (API v2).
    #[arg(long, value_name = "URL", value_parser = ReceiverUrl::parse)]
    pub alertmanager: Option<ReceiverUrl>,
    /// Send findings to this webhook, with a signature.
    #[arg(long, value_name = "URL", value_parser = ReceiverUrl::parse, requires = "webhook_secret_file")]
    pub webhook: Option<ReceiverUrl>,
    /// Secret for the signature (HMAC-SHA256).
    #[arg(long, value_name = "FILE", requires = "webhook")]
    pub webhook_secret_file: Option<PathBuf>,
}

/// Metrics of this host to others, and of all hosts to the page.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Fleet")]
pub struct ServeFleetArgs {
    /// Push metrics to this address with Prometheus remote write, such as
    /// `http://prometheus:9090`; without a path, /api/v1/write is added.
    #[arg(long, value_name = "URL", value_parser = ReceiverUrl::parse)]
    pub remote_write: Option<ReceiverUrl>,
    /// File with headers that it needs, one `Name: value` per line, such as `Authorization: Bearer
    /// TOKEN` or `X-Scope-OrgID: shop`.
    #[arg(long, value_name = "FILE", requires = "remote_write")]
    pub remote_write_header_file: Option<PathBuf>,
    /// Push metrics to this OTLP endpoint over HTTP, such as `http://collector:4318`; without a
    /// path, /v1/metrics is added.
    #[arg(long, value_name = "URL", value_parser = ReceiverUrl::parse)]
    pub otlp: Option<ReceiverUrl>,
    /// File with headers that it needs, one `Name: value` per line.
    #[arg(long, value_name = "FILE", requires = "otlp")]
    pub otlp_header_file: Option<PathBuf>,
    /// Time between two pushes.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_positive_duration)]
    pub push_every: Duration,
    /// Show all hosts on the page, from this Prometheus or VictoriaMetrics.
    #[arg(long, value_name = "URL", value_parser = ReceiverUrl::parse)]
    pub fleet_from: Option<ReceiverUrl>,
    /// File with a bearer token for it.
    #[arg(long, value_name = "FILE", requires = "fleet_from")]
    pub fleet_token_file: Option<PathBuf>,
    /// File with headers that it needs, one `Name: value` per line.
    #[arg(long, value_name = "FILE", requires = "fleet_from")]
    pub fleet_header_file: Option<PathBuf>,
    /// Label that names a host there.
    #[arg(long, value_name = "LABEL", default_value = "instance", value_parser = super::fleet::label)]
    pub host_label: String,
}

/// Traces of confirmed leaks.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Action")]
pub struct ServeTraceArgs {
    /// Attach a trace to a process of this service when its leak is confirmed, once a day at most;
    /// may be repeated. Off by default; `[serve] trace` in fdguard.toml names services, too.
    #[arg(long, value_name = "SERVICE")]
    pub trace_service: Vec<String>,
    /// Length of such a trace.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_positive_duration)]
    pub trace_for: Duration,
}

fn every(text: &str) -> Result<Duration, String> {
    let every = parse_positive_duration(text)?;
    let is_fit = (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&every);
    is_fit
        .then_some(every)
        .ok_or_else(|| "must be 100ms to 1h".to_owned())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (1..=65_536).contains(number));
    number.ok_or_else(|| "must be a number from 1 to 65536".to_owned())
}

fn series(text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (50..=10_000_000).contains(number));
    number.ok_or_else(|| "must be a number from 50 to 10000000".to_owned())
}

fn disk(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    let is_fit = size >= 1 << 20;
    is_fit
        .then_some(size)
        .ok_or_else(|| "must be at least 1MiB".to_owned())
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok();
    let mode = mode.filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "must be an octal mode up to 0777, such as 0660".to_owned())
}
