//! The command line as the user types it; nothing below the commands sees it.

use std::ffi::OsString;

use clap::{ArgAction, FromArgMatches as _, Parser, Subcommand, ValueEnum};

#[cfg(feature = "files")]
mod archive;
#[cfg(feature = "trace")]
mod check;
mod diff;
mod doctor;
#[cfg(feature = "supervise")]
mod drill;
mod explain;
#[cfg(feature = "serve")]
mod fleet;
mod help;
#[cfg(feature = "serve")]
mod history;
#[cfg(feature = "host")]
mod host;
#[cfg(feature = "files")]
mod inspect;
#[cfg(feature = "trace")]
mod protect;
#[cfg(feature = "trace")]
mod ready;
#[cfg(feature = "supervise")]
mod run;
mod select;
#[cfg(feature = "serve")]
mod serve;
mod snap;
mod top;
#[cfg(feature = "trace")]
mod trace;
mod unit;
mod watch;
#[cfg(feature = "trace")]
mod why;

#[cfg(feature = "files")]
pub use archive::ArchiveArgs;
#[cfg(feature = "trace")]
pub use check::{Annotations, CheckArgs, ExerciseArgs, LeaveArgs, ReportArgs};
pub use diff::DiffArgs;
pub use doctor::DoctorArgs;
#[cfg(feature = "supervise")]
pub use drill::DrillArgs;
pub use explain::ExplainArgs;
#[cfg(feature = "serve")]
pub use fleet::{FleetArgs, FleetSort, FleetWhat};
#[cfg(feature = "serve")]
pub use history::HistoryArgs;
#[cfg(feature = "host")]
pub use host::{AccessArgs, BoundArgs, HostArgs, SessionArgs};
#[cfg(feature = "files")]
pub use inspect::{InspectArgs, InspectCheck};
#[cfg(feature = "trace")]
pub use protect::{ProtectArgs, ProtectLevel};
#[cfg(feature = "trace")]
pub use ready::ReadyArg;
#[cfg(feature = "supervise")]
pub use run::RunArgs;
pub use select::{GroupArgs, SelectArgs, Selection};
#[cfg(feature = "serve")]
pub use serve::{DeliveryArgs, KeepArgs, ServeArgs, ServeFleetArgs, ServeTraceArgs, WebArgs};
pub use snap::{FailOn, SnapArgs, TierArg, ViaArg};
pub use top::TopArgs;
#[cfg(feature = "trace")]
pub use trace::{OutputArgs, SourceArg, TraceArgs};
pub use unit::{RestartArg, UnitArgs};
pub use watch::{LineForm, SettingsArgs, WatchArgs};
#[cfg(feature = "trace")]
pub use why::WhyArgs;

/// Find, survive and prevent file-descriptor leaks in long-running programs.
#[derive(Debug, Parser)]
#[command(
    name = "fdguard",
    version,
    arg_required_else_help = true,
    disable_help_flag = true,
    disable_version_flag = true,
    max_term_width = 100
)]
#[command(after_help = EXIT_CODES)]
pub struct Cli {
    /// Use colour: auto, always or never.
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, global = true, value_name = "WHEN", help_heading = help::GLOBAL)]
    pub color: ColorChoice,
    /// Print help; -h prints a summary.
    #[arg(short, long, action = ArgAction::Help, global = true, help_heading = help::GLOBAL)]
    pub help: Option<bool>,
    /// Print the version.
    #[arg(short = 'V', long, action = ArgAction::Version, help_heading = help::GLOBAL)]
    pub version: Option<bool>,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses these arguments, the program's name first. Help is short with -h and complete with
    /// --help.
    pub fn parse_args(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut matches = help::command().try_get_matches_from(args)?;
        Self::from_arg_matches_mut(&mut matches)
    }
}

const EXIT_CODES: &str = "\
Exit codes: 0 nothing found, 1 findings, 2 usage error, 3 could not read the process or file.
Start with `fdguard top`, then `fdguard snap PID` and `fdguard watch PID`.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show which processes are growing or near a descriptor limit.
    Top(TopArgs),
    /// Show what a process has open, by class and by target.
    Snap(SnapArgs),
    /// Compare two snapshots, or the phases of a run.
    Diff(DiffArgs),
    /// Run every check on a process and write the evidence for an issue.
    Doctor(Box<DoctorArgs>),
    /// Watch a process for leaks: class, rate, time left to each limit.
    Watch(Box<WatchArgs>),
    /// Find the line of code that opened what is still open.
    #[cfg(feature = "trace")]
    Trace(Box<TraceArgs>),
    /// Show which object holds each descriptor, and what keeps it alive.
    #[cfg(feature = "trace")]
    Why(WhyArgs),
    /// Fail if a program, or a server under exercise, leaks descriptors.
    #[cfg(feature = "trace")]
    Check(Box<CheckArgs>),
    /// Supervise a service in the foreground, with descriptor budgets.
    #[cfg(feature = "supervise")]
    Run(Box<RunArgs>),
    /// Test a service: kill -9, full table, taken port, orphan.
    #[cfg(feature = "supervise")]
    Drill(DrillArgs),
    /// Check a SQLite database or log for damage and list its holders.
    #[cfg(feature = "files")]
    Inspect(InspectArgs),
    /// Move logs to an archive without losing a line.
    #[cfg(feature = "files")]
    Archive(ArchiveArgs),
    /// Find the log lines that mean descriptor exhaustion.
    Explain(ExplainArgs),
    /// Write or lint a unit for systemd, launchd, supervisord or compose.
    Unit(Box<UnitArgs>),
    /// Serve agent sessions, cleanup and interruptible calls (HTTP, MCP).
    #[cfg(feature = "host")]
    Host(Box<HostArgs>),
    /// Watch the whole host all the time: metrics, findings, history (HTTP).
    #[cfg(feature = "serve")]
    Serve(Box<ServeArgs>),
    /// Show when a service began to grow, and after what.
    #[cfg(feature = "serve")]
    History(HistoryArgs),
    /// Show the services of all hosts, from Prometheus or VictoriaMetrics.
    #[cfg(feature = "serve")]
    Fleet(Box<FleetArgs>),
    /// Print a shell completion script.
    Completions {
        /// Shell to complete for.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// The feature of this crate that adds a command; `None` for a command that every build has.
pub(crate) fn feature_of(command: &str) -> Option<&'static str> {
    match command {
        "trace" | "check" | "why" => Some("trace"),
        "run" | "drill" => Some("supervise"),
        "inspect" | "archive" => Some("files"),
        "host" => Some("host"),
        "serve" | "history" => Some("serve"),
        _ => None,
    }
}

/// When to use colour; `auto` honours `NO_COLOR` and `CLICOLOR_FORCE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// Use colour on a terminal, unless NO_COLOR is set.
    Auto,
    /// Always use colour.
    Always,
    /// Never use colour.
    Never,
}

impl From<ColorChoice> for anstream::ColorChoice {
    fn from(choice: ColorChoice) -> Self {
        match choice {
            ColorChoice::Auto => Self::Auto,
            ColorChoice::Always => Self::Always,
            ColorChoice::Never => Self::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::{Cli, Command};

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lsof_fields_with_zeros_is_one_word() {
        let cli = Cli::try_parse_from(["fdguard", "snap", "-F0", "12"]).unwrap();
        let Command::Snap(snap) = cli.command else {
            panic!()
        };
        assert!(snap.fields && snap.null);
    }

    #[test]
    fn process_numbers_are_positive_and_fit() {
        for wrong in ["0", "-5", "99999999999", "abc", "1.5", ""] {
            let parsed = Cli::try_parse_from(["fdguard", "snap", wrong]);
            assert!(parsed.is_err(), "{wrong:?} was accepted as a process id");
        }
    }
}
