//! Arguments of `fdguard check`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fdguard_core::Pid;
use fdguard_core::glob::Glob;
use fdguard_core::proof::Allowance;
use fdguard_core::units::{parse_duration, parse_positive_duration};

use super::protect::ProtectArgs;
use super::ready::ReadyArg;
use super::select::{number_completer, parse_pid};
use super::{GroupArgs, SettingsArgs};

/// Fail if a program, or a server under exercise, leaks descriptors.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard check -- ./tests                          report open descriptors and leftover processes
  fdguard check --allow cache.py:31 -- python3 batch.py
  fdguard check --exercise 'curl -fs localhost:8080/' --ready tcp:8080 -- ./server
  fdguard check --exercise ./client --pid 1234      a running server
  fdguard check --exercise ./client --unit web      a running unit, container or pod
  fdguard check --scenario canary.toml -- ./server
Exit codes: the program's own if it failed, 128+n if signal n killed it, 125 if it could not be
traced, 126 if it could not be executed, 127 if it was not found; otherwise 0 nothing found,
1 findings, 2 usage error, 3 could not check (server never became ready, exercise failed).")]
pub struct CheckArgs {
    /// Exercise options.
    #[command(flatten)]
    pub exercise: ExerciseArgs,
    /// Allowances.
    #[command(flatten)]
    pub leave: LeaveArgs,
    /// Thresholds.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Print every setting of the scenario and of fdguard.toml with its source, and exit.
    #[arg(long)]
    pub explain: bool,
    /// Protection: closed descriptor numbers are quarantined so that stale uses are detected.
    #[command(flatten)]
    pub protect: ProtectArgs,
    /// Report formats.
    #[command(flatten)]
    pub reports: ReportArgs,
    /// Stop the program (SIGTERM) after this time; by default fdguard waits for it to exit.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive_duration, conflicts_with = "GroupArgs")]
    pub length: Option<Duration>,
    /// Repeat the exercise, or run the program, for this long.
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration, conflicts_with = "length")]
    pub soak: Option<Duration>,
    /// Compare final counts with this file; update it when the check passes.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Sampling interval of the external probe.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_positive_duration)]
    pub every: Duration,
    /// Start the program with this soft descriptor limit, so that slow leaks show early.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(16..), conflicts_with = "GroupArgs")]
    pub limit: Option<u64>,
    /// Also show which object of a Python, Java or Node program holds what it leaves open, and what
    /// keeps it alive.
    #[arg(long)]
    pub why: bool,
    /// Exit code for findings when the program itself succeeds.
    #[arg(long, value_name = "N", default_value_t = crate::exit::FINDINGS)]
    pub error_exitcode: u8,
    /// Program or server to run, with its arguments.
    #[arg(last = true, value_name = "COMMAND", required_unless_present_any = ["pid", "GroupArgs", "scenario", "explain"], conflicts_with = "GroupArgs")]
    pub command: Vec<OsString>,
}

/// How to exercise a server.
#[derive(Clone, Debug, Args)]
pub struct ExerciseArgs {
    /// Run this shell command once per cycle against the server.
    #[arg(
        help_heading = "Exercise",
        long,
        value_name = "CMD",
        conflicts_with = "protect"
    )]
    pub exercise: Option<String>,
    /// Read the server and several named exercises from a scenario file (see the guide).
    #[arg(
        help_heading = "Exercise",
        long,
        value_name = "FILE",
        conflicts_with_all = ["exercise", "protect"]
    )]
    pub scenario: Option<PathBuf>,
    /// Measured cycles; extended up to fourfold if the result is inconclusive.
    #[arg(help_heading = "Exercise", long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub cycles: u32,
    /// Warm-up cycles before measuring.
    #[arg(help_heading = "Exercise", long, value_name = "N", default_value_t = 5)]
    pub warmup: u32,
    /// Wait for the server: `tcp:PORT`, `http:URL` or `line:REGEX`.
    ///
    /// Forms: `tcp:PORT`, `tcp:HOST:PORT`, `http:URL`, or `line:REGEX`, which matches a line of the
    /// server's output.
    #[arg(help_heading = "Exercise", long, value_name = "HOW")]
    pub ready: Option<ReadyArg>,
    /// Time limit for the server to become ready.
    #[arg(help_heading = "Exercise", long, value_name = "TIME", default_value = "30s", value_parser = parse_positive_duration)]
    pub ready_timeout: Duration,
    /// Run this shell command after the cycles to make the server release resources, such as a
    /// garbage collection.
    #[arg(help_heading = "Exercise", long, value_name = "CMD")]
    pub settle: Option<String>,
    /// Commands run in parallel in each cycle.
    #[arg(help_heading = "Exercise", long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub concurrency: u32,
    /// Time limit of one cycle; a longer cycle counts as failed.
    #[arg(help_heading = "Exercise", long, value_name = "TIME", default_value = "60s", value_parser = parse_positive_duration)]
    pub cycle_timeout: Duration,
    /// Check a running server: fdguard attaches to it and its children, and does not stop it.
    #[arg(help_heading = "Exercise", short, long, value_name = "PID", value_parser = parse_pid, add = number_completer(), conflicts_with_all = ["command", "limit", "length", "GroupArgs"])]
    pub pid: Option<Pid>,
    /// The group of the running server, instead of its number.
    #[command(flatten)]
    pub groups: GroupArgs,
    /// Do not open the inspector of a running Node program: no JavaScript lines of it, and nothing
    /// on its stderr.
    #[arg(help_heading = "Exercise", long, conflicts_with = "command")]
    pub no_inspector: bool,
}

/// What the program may leave behind.
#[derive(Clone, Debug, Args)]
pub struct LeaveArgs {
    /// Accept a class, path, source line or rule; may be repeated.
    ///
    /// Examples: a class (`sqlite-*`), a path (`/var/log/*`), what a source line opened
    /// (`cache.py:31`), or the findings of a rule (`lock-drop`).
    #[arg(help_heading = "Allowances", long, value_name = "WHAT")]
    pub allow: Vec<Allowance>,
    /// Accept a process with this command that outlives the program; `*` matches any text.
    #[arg(help_heading = "Allowances", long, value_name = "NAME", value_parser = parse_glob)]
    pub allow_process: Vec<Glob>,
    /// Report every descriptor the program's own code left open, as valgrind does, however long the
    /// program ran.
    #[arg(help_heading = "Allowances", long)]
    pub strict: bool,
    /// Do not kill processes that outlive the program.
    #[arg(help_heading = "Allowances", long)]
    pub keep_leftovers: bool,
    /// Time for remaining processes to exit after the program.
    #[arg(help_heading = "Allowances", long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    pub grace: Duration,
}

/// Report formats.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Print the diagnosis as one JSON document, on the last line.
    #[arg(help_heading = "Reports", long)]
    pub json: bool,
    /// Write the report to a file; stdout and stderr belong to the program.
    #[arg(help_heading = "Reports", short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also write the findings as JUnit XML.
    #[arg(help_heading = "Reports", long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Also write the findings as SARIF 2.1.0.
    #[arg(help_heading = "Reports", long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
    /// Also print annotations for this CI system on stdout.
    #[arg(help_heading = "Reports", long, value_enum, value_name = "SYSTEM")]
    pub annotations: Option<Annotations>,
}

/// Format of the annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Annotations {
    /// GitHub Actions: `::error file=…,line=…::…`.
    Github,
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "clap wants a parser that may fail"
)]
fn parse_glob(text: &str) -> Result<Glob, String> {
    Ok(Glob::from(text))
}
