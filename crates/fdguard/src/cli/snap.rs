//! Arguments of `fdguard snap`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fdguard_core::lint::Severity;
use fdguard_probe::Depth;

use super::SelectArgs;

/// Show what a process has open, by class and by target.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard snap 1234                    classes, targets, limits (walls), lints
  fdguard snap 1234 --fds              every descriptor
  fdguard snap --name node --tree      a process and its descendants
  fdguard snap 1234 --json -o a.json   save it for fdguard diff
  fdguard snap 1234 --counts --json    for a health endpoint: no paths or peers")]
pub struct SnapArgs {
    /// Process selection.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Show a saved snapshot instead of a running process.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pids", "pid", "name", "tree", "container", "unit", "pod", "all"])]
    pub from: Option<PathBuf>,
    /// List every descriptor.
    #[arg(long)]
    pub fds: bool,
    /// Print only counts: no paths, no peers, no command lines.
    #[arg(long, conflicts_with_all = ["fds", "fields"])]
    pub counts: bool,
    /// Number of targets to show.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub targets: usize,
    /// Print one JSON document.
    #[arg(long, conflicts_with = "fields")]
    pub json: bool,
    /// Print the same output as `lsof -F`.
    #[arg(short = 'F', long = "fields")]
    pub fields: bool,
    /// With -F: terminate fields with NUL instead of a newline.
    #[arg(short = '0', long, requires = "fields")]
    pub null: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Source of the data.
    #[arg(long, value_enum, value_name = "SOURCE", default_value_t = ViaArg::Proc)]
    pub via: ViaArg,
    /// How to read descriptor tables.
    ///
    /// `kernel` reads all tables with a BPF iterator; it needs root, or CAP_BPF and CAP_PERFMON.
    /// `full` reads only `/proc`. `auto` uses `kernel` for 64 processes or more. If BPF is not
    /// permitted, fdguard reads `/proc`.
    #[arg(long, value_enum, value_name = "TIER", default_value_t = TierArg::Auto, conflicts_with = "from")]
    pub tier: TierArg,
    /// Do not search other processes for the peers of sockets and pipes.
    #[arg(long)]
    pub no_peers: bool,
    /// Exit with 1 if a lint of at least this severity is raised.
    #[arg(long, value_enum, value_name = "SEVERITY")]
    pub fail_on: Option<FailOn>,
    /// List the lints and what they detect.
    #[arg(long)]
    pub list_rules: bool,
}

/// Source of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ViaArg {
    /// `/proc` and netlink.
    Proc,
    /// The `lsof` program: portable, slower, less detailed.
    Lsof,
}

/// How to read descriptor tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TierArg {
    /// BPF if permitted and faster, otherwise `/proc`.
    Auto,
    /// `/proc` only.
    Full,
    /// BPF if permitted.
    Kernel,
}

/// Lowest severity that fails the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Any lint.
    Info,
    /// Warnings and worse.
    Warning,
    /// Only critical ones.
    Critical,
}

impl From<TierArg> for Depth {
    fn from(tier: TierArg) -> Self {
        match tier {
            TierArg::Auto => Self::Auto,
            TierArg::Full => Self::Full,
            TierArg::Kernel => Self::Kernel,
        }
    }
}

impl From<FailOn> for Severity {
    fn from(level: FailOn) -> Self {
        match level {
            FailOn::Info => Self::Info,
            FailOn::Warning => Self::Warning,
            FailOn::Critical => Self::Critical,
        }
    }
}
