//! Arguments of `fdguard doctor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration::parse_positive;
use super::{SelectArgs, SettingsArgs};

/// What is wrong with this process? The whole playbook in one go, and the evidence to attach to an issue.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard doctor 1234                          look, watch for 15 s, say what is wrong
  fdguard doctor 1234 -o evidence.tar.zst      the same, and a bundle for the issue
  fdguard doctor 1234 -o DIR --redact          without names of users, files, hosts, arguments
  fdguard doctor --name node --tree --for 2min a host and its children
  fdguard doctor 1234 --log app.log --html report.html
  fdguard doctor --from day.jsonl.zst -o DIR   what a recording tells")]
pub struct DoctorArgs {
    /// Which processes.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Examine a recording in place of a running process.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pids", "pid", "name", "tree", "all", "length", "every"])]
    pub from: Option<PathBuf>,
    /// How long to watch.
    #[arg(long = "for", value_name = "TIME", default_value = "15s", value_parser = parse_positive)]
    pub length: Duration,
    /// How often to look in that time.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_positive)]
    pub every: Duration,
    /// How it is to be judged.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// A log of the program, to be searched for what speaks of descriptors; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub log: Vec<PathBuf>,
    /// Write an evidence bundle: a new directory, or one file when it ends in .tar.zst or .tar.
    #[arg(short, long, value_name = "PLACE")]
    pub output: Option<PathBuf>,
    /// Write the report as a web page, in one file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Replace names of users, files, hosts and arguments by tokens, in everything that is written.
    #[arg(long)]
    pub redact: bool,
    /// One JSON document.
    #[arg(long)]
    pub json: bool,
}
