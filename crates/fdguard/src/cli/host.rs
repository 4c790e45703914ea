//! Arguments of `fdguard host`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration;

/// Agent sessions, clean-up and interruptible calls that cannot leak, over HTTP and MCP.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard host                                     at 127.0.0.1:7878, the token in a file of yours
  fdguard host --listen unix:/run/user/1000/agents.sock --no-token
  fdguard host --listen 127.0.0.1:0 --token-file ./token --max-sessions 8
  fdguard host --openapi > openapi.json            the interface, for generated clients
  fdguard host --state DIR --reconcile --dry-run   what did a host leave that was killed?
  fdguard host --mcp                               for one MCP client, on standard streams
Signals: TERM and INT end every session with a receipt, then the host (a second INT does not wait).
Exit codes: 0 ended as asked; 1 --reconcile found something; 2 wrong usage, or its address is somebody else's; 3 could not start.")]
pub struct HostArgs {
    /// Where: `127.0.0.1:PORT`, `[::1]:PORT` or `unix:PATH`; may be repeated. Port 0 takes any.
    #[arg(long, value_name = "WHERE")]
    pub listen: Vec<String>,
    /// Keep the registry of sessions in this folder, so that the next start knows of what was left.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print the OpenAPI document and start nothing.
    #[arg(long)]
    pub openapi: bool,
    /// Compare the registry in the folder of --state with the processes that are there, end what nobody keeps, and start nothing.
    #[arg(long, requires = "state", conflicts_with_all = ["listen", "openapi", "mcp"])]
    pub reconcile: bool,
    /// With --reconcile: say what would be changed, and change nothing.
    #[arg(long, requires = "reconcile")]
    pub dry_run: bool,
    /// Serve one MCP client on standard streams instead of listening; it ends with its input.
    #[arg(long, conflicts_with_all = ["listen", "openapi", "token_file", "no_token", "allow_remote", "allow_host", "allow_origin"])]
    pub mcp: bool,
    /// What sessions may.
    #[command(flatten)]
    pub sessions: SessionArgs,
    /// Who may ask.
    #[command(flatten)]
    pub access: AccessArgs,
    /// How much at a time.
    #[command(flatten)]
    pub bounds: BoundArgs,
    /// The form of event lines on stderr.
    #[arg(long, value_name = "FORM", value_parser = ["text", "json"], default_value = "text")]
    pub log_format: String,
}

/// What sessions may.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sessions")]
pub struct SessionArgs {
    /// Sessions at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = at_least_one)]
    pub max_sessions: usize,
    /// Close a session that nobody used for so long.
    #[arg(long, value_name = "TIME", default_value = "900s", value_parser = duration::parse_positive)]
    pub idle: Duration,
    /// How often idle sessions are looked for.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse_positive)]
    pub reap_every: Duration,
    /// The lease of a client that does not say one.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse_positive)]
    pub lease: Duration,
    /// Start every Python anew instead of from an interpreter that is kept warm.
    #[arg(long)]
    pub no_warm: bool,
    /// Files below this folder may be archived; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub root: Vec<PathBuf>,
}

/// Who may ask.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// Read the token from this file, or write a new one there [default: fdguard/host.token where your
    /// run-time or state files are]. $FDGUARD_HOST_TOKEN goes before it.
    #[arg(long, value_name = "FILE", conflicts_with = "no_token")]
    pub token_file: Option<PathBuf>,
    /// Let everybody in who can connect; only for local addresses and unix sockets.
    #[arg(long)]
    pub no_token: bool,
    /// Let other processes of the same user read the host's memory and descriptors: for debuggers, and for
    /// `fdguard snap` of the host without root. Sessions can then read the token.
    #[arg(long)]
    pub inspectable: bool,
    /// The permissions of unix sockets.
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = mode)]
    pub mode: u32,
    /// Listen at addresses that other machines can reach, too. Nothing is encrypted.
    #[arg(long)]
    pub allow_remote: bool,
    /// A name that callers may use for this machine in the Host header; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
    /// A web page that may ask, as `https://example.org`; may be repeated.
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<String>,
}

/// How much at a time.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Bounds")]
pub struct BoundArgs {
    /// The largest body of a request: `8MiB`, `500000`.
    #[arg(long, value_name = "BYTES", default_value = "8MiB", value_parser = size)]
    pub max_body: usize,
    /// Connections at a time.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = at_least_one)]
    pub max_connections: usize,
    /// Requests at a time.
    #[arg(long, value_name = "N", default_value_t = 192, value_parser = at_least_one)]
    pub max_requests: usize,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=65_536).contains(number));
    number.ok_or_else(|| "a number from 1 to 65536".to_owned())
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok();
    let mode = mode.filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "a mode is octal, as in 0660".to_owned())
}

fn size(text: &str) -> Result<usize, String> {
    let units = [
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
        ("", 1),
    ];
    let parsed = units.into_iter().find_map(|(unit, bytes)| {
        let number: usize = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(bytes)
    });
    let parsed = parsed.filter(|size| (1..=1 << 30).contains(size));
    parsed.ok_or_else(|| "1 byte to 1GiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{mode, size};

    #[test]
    fn sizes_and_modes_are_read_or_refused() {
        assert_eq!((size("8MiB"), size("500")), (Ok(8 << 20), Ok(500)));
        for wrong in ["", "0", "-1", "8MB", "2GiB", "MiB", "99999999999999999999"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(mode("0660"), Ok(0o660));
        for wrong in ["", "888", "01777", "rw"] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }
}
