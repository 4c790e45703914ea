//! Arguments of `fdguard host`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fdguard_core::units::{parse_positive_duration, parse_size};

/// Serve agent sessions, cleanup and interruptible calls (HTTP, MCP).
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard host                                     listen on 127.0.0.1:7878; token in a private file
  fdguard host --listen unix:/run/user/1000/agents.sock --no-token
  fdguard host --listen 127.0.0.1:0 --token-file ./token --max-sessions 8
  fdguard host --openapi > openapi.json            OpenAPI document, for generated clients
  fdguard host --state DIR --reconcile --dry-run   list what a killed host left behind
  fdguard host --mcp                               serve one MCP client on stdin and stdout
Signals: TERM and INT close every session with a receipt, then stop the host. A second INT stops it
at once.
Exit codes: 0 stopped on request; 1 --reconcile found something; 2 usage error, or the address is in
use; 3 could not start.")]
pub struct HostArgs {
    /// Listen address: `HOST:PORT` or `unix:PATH`; may be repeated.
    ///
    /// Forms: `127.0.0.1:PORT`, `[::1]:PORT` or `unix:PATH`. Port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<String>,
    /// Directory of the session registry, which survives a restart.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print the OpenAPI document and exit.
    #[arg(long)]
    pub openapi: bool,
    /// Compare the registry in --state with the running processes, stop orphans, and exit.
    #[arg(long, requires = "state", conflicts_with_all = ["listen", "openapi", "mcp"])]
    pub reconcile: bool,
    /// With --reconcile: print the changes without making them.
    #[arg(long, requires = "reconcile")]
    pub dry_run: bool,
    /// Serve one MCP client on stdin and stdout until stdin closes.
    #[arg(long, conflicts_with_all = ["listen", "openapi", "token_file", "no_token", "allow_remote", "allow_host", "allow_origin"])]
    pub mcp: bool,
    /// Session options.
    #[command(flatten)]
    pub sessions: SessionArgs,
    /// Access control.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Limits.
    #[command(flatten)]
    pub bounds: BoundArgs,
    /// Format of the event log on stderr.
    #[arg(help_heading = "Output", long, value_name = "FORMAT", value_parser = ["text", "json"], default_value = "text")]
    pub log_format: String,
}

/// Session options.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sessions")]
pub struct SessionArgs {
    /// Maximum number of sessions.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = at_least_one)]
    pub max_sessions: usize,
    /// Close a session that has been idle for this long.
    #[arg(long, value_name = "TIME", default_value = "900s", value_parser = parse_positive_duration)]
    pub idle: Duration,
    /// Interval between searches for idle sessions.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_positive_duration)]
    pub reap_every: Duration,
    /// Lease for clients that do not request one.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_positive_duration)]
    pub lease: Duration,
    /// Start a new Python interpreter for each session instead of using a pre-started one.
    #[arg(long)]
    pub no_warm: bool,
    /// Allow archiving of files below this directory; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub root: Vec<PathBuf>,
}

/// Access control.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// Read the token from this file, or create it there.
    ///
    /// Default: fdguard/host.token in the user's runtime or state directory. The variable
    /// $FDGUARD_HOST_TOKEN overrides the file.
    #[arg(long, value_name = "FILE", conflicts_with = "no_token")]
    pub token_file: Option<PathBuf>,
    /// Accept every client that can connect; only for local addresses and Unix sockets.
    #[arg(long)]
    pub no_token: bool,
    /// Let other processes of the same user read the host's memory and descriptors. Debuggers and
    /// `fdguard snap` need this without root. Sessions can then read the token.
    #[arg(long)]
    pub inspectable: bool,
    /// Permissions of Unix sockets.
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = mode)]
    pub mode: u32,
    /// Also listen on addresses that other machines can reach. Traffic is not encrypted.
    #[arg(long)]
    pub allow_remote: bool,
    /// Accept this name in the Host header; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
    /// Accept requests from this web origin, such as `https://example.org`; may be repeated.
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<String>,
}

/// Limits.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct BoundArgs {
    /// Maximum size of a request body: `8MiB`, `500000`.
    #[arg(long, value_name = "BYTES", default_value = "8MiB", value_parser = size)]
    pub max_body: usize,
    /// Maximum number of connections.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = at_least_one)]
    pub max_connections: usize,
    /// Maximum number of concurrent requests.
    #[arg(long, value_name = "N", default_value_t = 192, value_parser = at_least_one)]
    pub max_requests: usize,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=65_536).contains(number));
    number.ok_or_else(|| "must be a number from 1 to 65536".to_owned())
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok();
    let mode = mode.filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "must be an octal mode up to 0777, such as 0660".to_owned())
}

fn size(text: &str) -> Result<usize, String> {
    let size = usize::try_from(parse_size(text)?).ok();
    let size = size.filter(|size| (1..=1 << 30).contains(size));
    size.ok_or_else(|| "must be from 1 byte to 1GiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{mode, size};

    #[test]
    fn sizes_and_modes_are_read_or_refused() {
        assert_eq!((size("8MiB"), size("500")), (Ok(8 << 20), Ok(500)));
        assert_eq!((size("8MB"), size("64M")), (Ok(8_000_000), Ok(64 << 20)));
        for wrong in ["", "0", "-1", "2GiB", "MiB", "99999999999999999999"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(mode("0660"), Ok(0o660));
        for wrong in ["", "888", "01777", "rw"] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }
}
