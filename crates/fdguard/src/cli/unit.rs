//! Arguments of `fdguard unit`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fdguard_process::listen::Listen;

use super::FailOn;
use super::duration::parse_positive;
use crate::unit::UnitTarget;

/// Write the unit for my supervisor, or find the traps in one.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard unit systemd -- python3 server.py                to standard output
  fdguard unit systemd --user --listen tcp:8787 -o ~/.config/systemd/user/web.service --name web -- python3 server.py
  fdguard unit launchd --name org.example.web -- /opt/web/server
  fdguard unit --lint web.service                          what is wrong with mine?
Exit codes: 0 written, or clean; 1 traps of --fail-on (warning) or worse found; 2 wrong usage; 3 the file could not be read.")]
pub struct UnitArgs {
    /// For whom; with --lint only where the file does not tell.
    #[arg(value_enum, required_unless_present = "lint")]
    pub target: Option<UnitTarget>,
    /// The name of the service; that of the program when absent.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A socket that fdguard binds and hands over: [NAME=]tcp:PORT, tcp:HOST:PORT, tcp:*:PORT, unix:PATH; may be repeated.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<Listen>,
    /// Where fdguard offers metrics and health.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<std::net::SocketAddr>,
    /// From the first signal to KILL.
    #[arg(long = "stop-grace", value_name = "TIME", default_value = "10s", value_parser = parse_positive)]
    pub grace: Duration,
    /// When fdguard starts the program again.
    #[arg(long, value_enum, default_value_t = RestartArg::OnFailure, value_name = "WHEN")]
    pub restart: RestartArg,
    /// The limits of descriptors, SOFT or SOFT:HARD.
    #[arg(long, value_name = "LIMIT", default_value = "4096:524288", value_parser = parse_limits)]
    pub files: (u64, u64),
    /// For this user, not for the machine (systemd, launchd).
    #[arg(long)]
    pub user: bool,
    /// Where the program starts.
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Where fdguard will be; this one when absent.
    #[arg(long, value_name = "PATH")]
    pub fdguard: Option<PathBuf>,
    /// The image of the container (compose); built from the folder of the file when absent.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Find the traps in this unit; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "name", "listen", "metrics", "user", "folder", "fdguard", "image"])]
    pub lint: Option<PathBuf>,
    /// With --lint: exit with 1 when a trap of this severity or a worse one was found.
    #[arg(
        long,
        value_enum,
        value_name = "SEVERITY",
        default_value_t = FailOn::Warning,
        conflicts_with = "command"
    )]
    pub fail_on: FailOn,
    /// One JSON document: the findings, or the unit as a text in it.
    #[arg(long)]
    pub json: bool,
    /// Write to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required_unless_present = "lint", value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// When the program is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RestartArg {
    /// Whenever it ends.
    Always,
    /// When it failed.
    OnFailure,
    /// Not at all.
    Never,
}

impl RestartArg {
    /// As `fdguard run` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::OnFailure => "on-failure",
            Self::Never => "never",
        }
    }
}

fn parse_limits(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("{text:?}: a limit is SOFT or SOFT:HARD, as in 4096:524288");
    let number = |text: &str| {
        text.parse::<u64>()
            .ok()
            .filter(|it| *it > 0)
            .ok_or_else(wrong)
    };
    let (soft, hard) = match text.split_once(':') {
        Some((soft, hard)) => (number(soft)?, number(hard)?),
        None => (number(text)?, number(text)?),
    };
    if soft > hard {
        return Err(format!("{text:?}: the soft limit is above the hard one"));
    }
    Ok((soft, hard))
}

#[cfg(test)]
mod tests {
    use super::parse_limits;

    #[test]
    fn limits() {
        assert_eq!(parse_limits("4096"), Ok((4096, 4096)));
        assert_eq!(parse_limits("1024:4096"), Ok((1024, 4096)));
        for wrong in ["", "0", "a", "5:4", "1:", "-1"] {
            assert!(parse_limits(wrong).is_err(), "{wrong}");
        }
    }
}
