//! Arguments of `fdguard watch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fdguard_core::config::Expectation;
use fdguard_core::units::{parse_duration, parse_positive_duration};

use super::SelectArgs;

/// Watch a process for leaks: class, rate, time left to each limit.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard watch 1234                            live, until you press q
  fdguard watch 1234 --for 60s                  a verdict after a minute
  fdguard watch --name node --tree --for 10m    a process and its descendants
  fdguard watch 1234 --every 300s >> fd.log     one line every five minutes
  fdguard watch 1234 --expect 'sessions=25*3'   warn at twice what 25 sessions need
  fdguard watch 1234 --record day.jsonl.zst     record it; replay it with --from
Exit codes: 0 nothing found, 1 findings, 2 usage error, 3 could not read the process.")]
pub struct WatchArgs {
    /// Process selection.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Time to watch; by default until interrupted or the process exits.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive_duration)]
    pub length: Option<Duration>,
    /// Sampling interval.
    ///
    /// Default: an eightieth of --for, but 250ms to 300s. Without --for: 1s in the live view,
    /// otherwise 300s.
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub every: Option<Duration>,
    /// Random variation of the sampling interval; a tenth of it by default from one minute on.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub jitter: Option<Duration>,
    /// Thresholds.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Print the diagnosis as one JSON document, on the last line.
    #[arg(long)]
    pub json: bool,
    /// With --json: print one line per sample before the diagnosis.
    #[arg(long, requires = "json")]
    pub samples: bool,
    /// Print lines instead of the live view.
    #[arg(long)]
    pub plain: bool,
    /// Format of those lines.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LineForm::Fdguard)]
    pub format: LineForm,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Record all samples to a file; the suffix `.zst` compresses it.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Evaluate a recording instead of a running process.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pids", "pid", "name", "tree", "container", "unit", "pod", "all", "record", "length", "every", "jitter"])]
    pub from: Option<PathBuf>,
    /// List the rules and what they detect.
    #[arg(long)]
    pub list_rules: bool,
}

/// Thresholds and their files.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArgs {
    /// Expected use, such as `sessions=25*3`; warn at twice that number.
    #[arg(help_heading = "Thresholds", long, value_name = "NAME=UNITS*EACH")]
    pub expect: Vec<Expectation>,
    /// Warn above this many descriptors.
    #[arg(help_heading = "Thresholds", long, value_name = "N")]
    pub max: Option<u64>,
    /// Warn above this percentage of a limit (wall).
    #[arg(help_heading = "Thresholds", long, value_name = "PERCENT")]
    pub warn_at: Option<f64>,
    /// Report a critical finding at this percentage of a limit (wall).
    #[arg(help_heading = "Thresholds", long, value_name = "PERCENT")]
    pub critical_at: Option<f64>,
    /// File with levels, expectations and cleared suspects; by default `fdguard.toml` in the
    /// current directory.
    #[arg(help_heading = "Thresholds", long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Use the advice of this playbook before the built-in one.
    #[arg(help_heading = "Thresholds", long, value_name = "FILE")]
    pub playbook: Option<PathBuf>,
}

/// Format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LineForm {
    /// `fd_state pid= count= highest= soft= percent= growing= verdict=`.
    Fdguard,
    /// `FD_STATE[watch]: count=, range=min-max, limit=`.
    Inxeption,
    /// `Resource monitor: open_fds=`.
    ResourceMonitor,
}
