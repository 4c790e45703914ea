//! Arguments of `fdguard unit`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fdguard_core::units::parse_positive_duration;
use fdguard_process::listen::Listen;

use super::FailOn;
use crate::unit::UnitTarget;

/// Write or lint a unit for systemd, launchd, supervisord or compose.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard unit systemd -- python3 server.py                print a unit
  fdguard unit systemd --user --listen tcp:8787 --name web \\
      -o ~/.config/systemd/user/web.service -- python3 server.py
  fdguard unit launchd --name org.example.web -- /opt/web/server
  fdguard unit --lint web.service                          check an existing unit
Exit codes: 0 written, or no problems; 1 problems of at least the --fail-on severity (warning);
2 usage error; 3 the file could not be read.")]
pub struct UnitArgs {
    /// Supervisor; with --lint, only needed if the file does not show it.
    #[arg(value_enum, required_unless_present = "lint")]
    pub target: Option<UnitTarget>,
    /// Name of the service; the program's name by default.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Socket that fdguard binds and passes to the program; may be repeated.
    ///
    /// Forms: [NAME=]tcp:PORT, tcp:HOST:PORT, tcp:*:PORT, unix:PATH.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<Listen>,
    /// Address of fdguard's metrics and health endpoint.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<std::net::SocketAddr>,
    /// Time between the stop signal and SIGKILL.
    #[arg(long = "stop-grace", value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    pub grace: Duration,
    /// When fdguard restarts the program.
    #[arg(long, value_enum, default_value_t = RestartArg::OnFailure, value_name = "WHEN")]
    pub restart: RestartArg,
    /// Descriptor limits: SOFT or SOFT:HARD.
    #[arg(long, value_name = "LIMIT", default_value = "4096:524288", value_parser = parse_limits)]
    pub files: (u64, u64),
    /// Write a per-user unit instead of a system unit (systemd, launchd).
    #[arg(long)]
    pub user: bool,
    /// Working directory of the program.
    #[arg(id = "folder", long = "folder", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Path of fdguard on the target; this executable by default.
    #[arg(long, value_name = "PATH")]
    pub fdguard: Option<PathBuf>,
    /// Container image (compose); by default built from the file's directory.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Check this unit for common mistakes; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "name", "listen", "metrics", "user", "folder", "fdguard", "image"])]
    pub lint: Option<PathBuf>,
    /// With --lint: exit with 1 if a problem of at least this severity is found.
    #[arg(
        long,
        value_enum,
        value_name = "SEVERITY",
        default_value_t = FailOn::Warning,
        conflicts_with = "command"
    )]
    pub fail_on: FailOn,
    /// Print one JSON document with the findings or the unit's text.
    #[arg(long)]
    pub json: bool,
    /// Write the unit or the findings to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Program to run, with its arguments.
    #[arg(last = true, required_unless_present = "lint", value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// When the program is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RestartArg {
    /// After every exit.
    Always,
    /// After a failure.
    OnFailure,
    /// Never.
    Never,
}

impl RestartArg {
    /// Value of `fdguard run --restart`.
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
    let wrong = || format!("{text:?}: limits must be SOFT or SOFT:HARD, such as 4096:524288");
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
        return Err(format!("{text:?}: the soft limit exceeds the hard limit"));
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
