//! The command line as the user types it; nothing below the commands sees it.

use clap::{Parser, Subcommand, ValueEnum};

mod archive;
mod check;
mod diff;
mod doctor;
mod drill;
mod duration;
mod explain;
mod host;
mod inspect;
mod protect;
mod ready;
mod run;
mod select;
mod snap;
mod top;
mod trace;
mod unit;
mod watch;

pub use archive::ArchiveArgs;
pub use check::{Annotations, CheckArgs, ExerciseArgs, LeaveArgs, ReportArgs};
pub use diff::DiffArgs;
pub use doctor::DoctorArgs;
pub use drill::DrillArgs;
pub use explain::ExplainArgs;
pub use host::{AccessArgs, BoundArgs, HostArgs, SessionArgs};
pub use inspect::{InspectArgs, InspectCheck};
pub use protect::{ProtectArgs, ProtectLevel};
pub use ready::ReadyArg;
pub use run::RunArgs;
pub use select::{SelectArgs, Selection};
pub use snap::{FailOn, SnapArgs, TierArg, ViaArg};
pub use top::TopArgs;
pub use trace::{OutputArgs, TraceArgs};
pub use unit::{RestartArg, UnitArgs};
pub use watch::{LineForm, SettingsArgs, WatchArgs};

/// Finds, survives and prevents file-descriptor leaks in long-running programs.
#[derive(Debug, Parser)]
#[command(
    name = "fdguard",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
#[command(after_help = EXIT_CODES)]
pub struct Cli {
    /// When to use colour.
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, global = true, value_name = "WHEN")]
    pub color: ColorChoice,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 nothing found, 1 findings, 2 wrong usage, 3 could not look.
Start with `fdguard top`, then `fdguard snap PID` and `fdguard watch PID`.";

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Which processes on this host are near a wall, or growing?
    Top(TopArgs),
    /// What does this process hold right now, by class and by target?
    Snap(SnapArgs),
    /// What changed between two snapshots?
    Diff(DiffArgs),
    /// What is wrong with this process? The whole playbook in one go, and the evidence for an issue.
    Doctor(Box<DoctorArgs>),
    /// Is it leaking, which class, how fast, when does it hit which wall?
    Watch(Box<WatchArgs>),
    /// Which line of code opened what is still open?
    Trace(Box<TraceArgs>),
    /// Does this program, or this exercise of a server, return to its baseline?
    Check(Box<CheckArgs>),
    /// Keep this service alive: a foreground supervisor with a descriptor budget.
    Run(Box<RunArgs>),
    /// Does my service survive kill -9, a full table, a held port, an orphan?
    Drill(DrillArgs),
    /// Is this file damaged, by what, and who holds it?
    Inspect(InspectArgs),
    /// Move these logs into an archive without losing a line.
    Archive(ArchiveArgs),
    /// Which of these log lines are really descriptor exhaustion?
    Explain(ExplainArgs),
    /// Write the unit for my supervisor, or find the traps in one.
    Unit(Box<UnitArgs>),
    /// Sessions of agents, clean-up and interruptible calls that cannot leak, over HTTP.
    Host(Box<HostArgs>),
    /// Print the completion script for a shell.
    Completions {
        /// Which shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// When to use colour; `NO_COLOR` and `CLICOLOR_FORCE` are honoured by `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
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
            assert!(parsed.is_err(), "{wrong:?} was taken for a process number");
        }
    }
}
