//! Arguments of `fdguard doctor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fdguard_core::units::parse_positive_duration;

use super::{SelectArgs, SettingsArgs};

/// Run every check on a process and write the evidence for an issue.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard doctor 1234                          watch for 15 s and report what is wrong
  fdguard doctor 1234 -o evidence.tar.zst      also write a bundle to attach to an issue
  fdguard doctor 1234 -o DIR --redact          hide users, files, hosts and arguments
  fdguard doctor --name node --tree --for 2min a process and its descendants
  fdguard doctor 1234 --trace 30s              attach to it, and name the lines
  fdguard doctor 1234 --log app.log --html report.html
  fdguard doctor --from day.jsonl.zst -o DIR   examine a recording")]
pub struct DoctorArgs {
    /// Process selection.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Examine a recording instead of a running process.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pids", "pid", "name", "tree", "container", "unit", "pod", "all", "length", "every"])]
    pub from: Option<PathBuf>,
    /// Time to watch the process.
    #[arg(long = "for", value_name = "TIME", default_value = "15s", value_parser = parse_positive_duration)]
    pub length: Duration,
    /// Attach to the process for this time, so that the report names the lines; replaces --for.
    #[cfg(feature = "trace")]
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration, conflicts_with_all = ["from", "redact", "length"])]
    pub trace: Option<Duration>,
    /// With --trace: do not open the inspector of a Node program; no JavaScript lines of it then.
    #[cfg(feature = "trace")]
    #[arg(long, requires = "trace")]
    pub no_inspector: bool,
    /// Also name the object of a Python, Java or Node program that holds each descriptor. Attaches
    /// to a process that is not traced yet, as --trace does.
    #[cfg(feature = "trace")]
    #[arg(long, conflicts_with_all = ["from", "redact"])]
    pub why: bool,
    /// Sampling interval.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_positive_duration)]
    pub every: Duration,
    /// Thresholds.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Search this log for signs of descriptor exhaustion; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub log: Vec<PathBuf>,
    /// Write an evidence bundle: a new directory, or a .tar or .tar.zst file.
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Write the report as a self-contained web page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Replace users, files, hosts and arguments by tokens in all output.
    #[arg(long)]
    pub redact: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
}

impl DoctorArgs {
    /// How long the process is watched.
    #[must_use]
    pub fn watched(&self) -> Duration {
        #[cfg(feature = "trace")]
        if let Some(length) = self.trace {
            return length;
        }
        self.length
    }
}
