//! Arguments of `fdguard snap`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fdguard_core::lint::Severity;
use fdguard_probe::Depth;

use super::SelectArgs;

/// What does this process hold right now, by class and by target?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard snap 1234                    classes, targets, walls, lints
  fdguard snap 1234 --fds              every descriptor
  fdguard snap --name node --tree      an agent host and its children as one budget
  fdguard snap 1234 --json -o a.json   keep it, for fdguard diff
  fdguard snap 1234 --counts --json    safe for a health endpoint: no paths, no peers")]
pub struct SnapArgs {
    /// Which processes.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Show a saved snapshot instead of a running process.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pids", "pid", "name", "tree", "all"])]
    pub from: Option<PathBuf>,
    /// List every descriptor.
    #[arg(long)]
    pub fds: bool,
    /// Only counts: no paths, no peers, no command lines.
    #[arg(long, conflicts_with_all = ["fds", "fields"])]
    pub counts: bool,
    /// How many targets to show.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub targets: usize,
    /// One JSON document.
    #[arg(long, conflicts_with = "fields")]
    pub json: bool,
    /// The output of `lsof -F`.
    #[arg(short = 'F', long = "fields")]
    pub fields: bool,
    /// With -F: end fields with NUL instead of a newline.
    #[arg(short = '0', long, requires = "fields")]
    pub null: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Read through `/proc`, or through the `lsof` program.
    #[arg(long, value_enum, default_value_t = ViaArg::Proc)]
    pub via: ViaArg,
    /// How to read: `kernel` asks the kernel for all tables at once (root, or CAP_BPF and CAP_PERFMON), `full` reads `/proc`
    /// alone; `auto` asks the kernel from 64 processes on. Where it may not be asked, `/proc` is read.
    #[arg(long, value_enum, value_name = "TIER", default_value_t = TierArg::Auto, conflicts_with = "from")]
    pub tier: TierArg,
    /// Do not look at other processes for who holds the other ends.
    #[arg(long)]
    pub no_peers: bool,
    /// Exit with 1 when a lint of this severity or a graver one was raised.
    #[arg(long, value_enum, value_name = "SEVERITY")]
    pub fail_on: Option<FailOn>,
    /// List the lints and what they look for.
    #[arg(long)]
    pub list_rules: bool,
}

/// Which reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ViaArg {
    /// `/proc` and netlink.
    Proc,
    /// The `lsof` program: portable, slower, tells less.
    Lsof,
}

/// How to read tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TierArg {
    /// By the kernel where that is allowed and pays.
    Auto,
    /// Through `/proc` alone.
    Full,
    /// By the kernel where that is allowed.
    Kernel,
}

/// From which severity on a lint fails the command.
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
