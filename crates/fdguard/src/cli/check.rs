//! Arguments of `fdguard check`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fdguard_core::Pid;
use fdguard_core::glob::Glob;
use fdguard_core::proof::Allowance;

use super::SettingsArgs;
use super::duration::parse_positive;
use super::protect::ProtectArgs;
use super::ready::ReadyArg;
use super::select::parse_pid;

/// Does this program, or this exercise of a server, return to its baseline?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard check -- ./tests                          what did it leave open, and who still runs?
  fdguard check --allow cache.py:31 -- python3 batch.py
  fdguard check --exercise 'curl -fs localhost:8080/' --ready tcp:8080 -- ./server
  fdguard check --exercise ./client --pid 1234      a server that runs already: no lines
  fdguard check --scenario canary.toml -- ./server
Exit codes: that of the program when it failed, 128+n when signal n ended it, 125 when it could not be
traced, 126 when it could not be run, 127 when it was not found; else 0 nothing found, 1 findings,
2 wrong usage, 3 could not look (the server was never ready, the exercise failed).")]
pub struct CheckArgs {
    /// How a server is exercised.
    #[command(flatten)]
    pub exercise: ExerciseArgs,
    /// What may be left.
    #[command(flatten)]
    pub leave: LeaveArgs,
    /// How it is to be judged.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// How it is protected: a number that was closed is kept for a while, so that a stale use is
    /// found.
    #[command(flatten)]
    pub protect: ProtectArgs,
    /// Where it is told.
    #[command(flatten)]
    pub reports: ReportArgs,
    /// End the program (SIGTERM) after this time; until it ends by itself when absent.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive)]
    pub length: Option<Duration>,
    /// Keep at it for so long: cycles of the exercise, or the program itself.
    #[arg(long, value_name = "TIME", value_parser = parse_positive, conflicts_with = "length")]
    pub soak: Option<Duration>,
    /// Compare what is held in the end with this file, and write it anew when the check passes.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Time between two looks from outside.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_positive)]
    pub every: Duration,
    /// Start the program with this soft limit of descriptors: what drips shows early.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(16..))]
    pub limit: Option<u64>,
    /// Exit code when something is found and the program itself succeeded.
    #[arg(long, value_name = "N", default_value_t = crate::exit::FINDINGS)]
    pub error_exitcode: u8,
    /// The program, or the server, and its arguments.
    #[arg(last = true, value_name = "COMMAND", required_unless_present_any = ["pid", "scenario"])]
    pub command: Vec<OsString>,
}

/// How a server is exercised.
#[derive(Clone, Debug, Args)]
pub struct ExerciseArgs {
    /// Run this shell command again and again while the server runs: one cycle.
    #[arg(
        help_heading = "Exercise",
        long,
        value_name = "CMD",
        conflicts_with = "protect"
    )]
    pub exercise: Option<String>,
    /// A server and several named exercises of it, from a file; see the guide.
    #[arg(
        help_heading = "Exercise",
        long,
        value_name = "FILE",
        conflicts_with_all = ["exercise", "protect"]
    )]
    pub scenario: Option<PathBuf>,
    /// Cycles that count; up to four times as many where that does not decide.
    #[arg(help_heading = "Exercise", long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub cycles: u32,
    /// Cycles before those.
    #[arg(help_heading = "Exercise", long, value_name = "N", default_value_t = 5)]
    pub warmup: u32,
    /// When the server is ready: `tcp:PORT`, `tcp:HOST:PORT`, `http:URL`, or `line:REGEX` in its output.
    #[arg(help_heading = "Exercise", long, value_name = "HOW")]
    pub ready: Option<ReadyArg>,
    /// How long it may take.
    #[arg(help_heading = "Exercise", long, value_name = "TIME", default_value = "30s", value_parser = parse_positive)]
    pub ready_timeout: Duration,
    /// Run this shell command after the cycles: it makes the server let go (a collection, say).
    #[arg(help_heading = "Exercise", long, value_name = "CMD")]
    pub settle: Option<String>,
    /// Commands that run at the same time in each cycle.
    #[arg(help_heading = "Exercise", long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub concurrency: u32,
    /// A cycle that takes longer has failed.
    #[arg(help_heading = "Exercise", long, value_name = "TIME", default_value = "60s", value_parser = parse_positive)]
    pub cycle_timeout: Duration,
    /// A server that runs already; it is not ended, and lines are not known.
    #[arg(help_heading = "Exercise", short, long, value_name = "PID", value_parser = parse_pid, conflicts_with_all = ["command", "limit", "length"])]
    pub pid: Option<Pid>,
}

/// What may be left.
#[derive(Clone, Debug, Args)]
pub struct LeaveArgs {
    /// Accept a class (`sqlite-*`), a path (`/var/log/*`), what a line did (`cache.py:31`), or what a rule finds (`lock-drop`).
    #[arg(help_heading = "What may be left", long, value_name = "WHAT")]
    pub allow: Vec<Allowance>,
    /// A process with this command may outlive the program; `*` stands for anything.
    #[arg(help_heading = "What may be left", long, value_name = "NAME", value_parser = parse_glob)]
    pub allow_process: Vec<Glob>,
    /// Whatever the program's own code left open counts, as in valgrind, however long it ran.
    #[arg(help_heading = "What may be left", long)]
    pub strict: bool,
    /// Leave processes that outlived the program running.
    #[arg(help_heading = "What may be left", long)]
    pub keep_leftovers: bool,
    /// How long processes may take to end after the program.
    #[arg(help_heading = "What may be left", long, value_name = "TIME", default_value = "2s", value_parser = super::duration::parse)]
    pub grace: Duration,
}

/// Where it is told.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// One JSON document, the diagnosis, as the last line.
    #[arg(help_heading = "Reports", long)]
    pub json: bool,
    /// Write the result to a file: stdout and stderr are the program's.
    #[arg(help_heading = "Reports", short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write the findings as JUnit XML, too.
    #[arg(help_heading = "Reports", long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write the findings as SARIF 2.1.0, too.
    #[arg(help_heading = "Reports", long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
    /// Print annotations for this CI system on stdout, too.
    #[arg(help_heading = "Reports", long, value_enum, value_name = "SYSTEM")]
    pub annotations: Option<Annotations>,
}

/// Whose form of annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Annotations {
    /// `::error file=…,line=…::…`.
    Github,
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "clap wants a parser that may fail"
)]
fn parse_glob(text: &str) -> Result<Glob, String> {
    Ok(Glob::from(text))
}
