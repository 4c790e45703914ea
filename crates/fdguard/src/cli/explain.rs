//! Arguments of `fdguard explain`.

use std::path::PathBuf;

use clap::Args;
use fdguard_core::{Class, Pid};

use super::GroupArgs;
use super::select::{number_completer, parse_pid};

/// Find the log lines that mean descriptor exhaustion.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard explain /var/log/agent.log             matching lines, the limit, the next step
  journalctl -u agent | fdguard explain -p 1234  also what the process has open
  fdguard explain --class pipe                   usual causes of leaked pipes, and the fix
  fdguard explain --search zombie                playbook entries that contain a word
Exit codes: 0 no symptoms found, 1 symptoms found, 3 the log or the process could not be read.")]
pub struct ExplainArgs {
    /// Log file; standard input by default or with `-`.
    #[arg(value_name = "LOG")]
    pub log: Option<PathBuf>,
    /// Also show what this process has open, with the usual causes.
    #[arg(short, long, value_name = "PID", value_parser = parse_pid, add = number_completer(), conflicts_with = "GroupArgs", allow_negative_numbers = true)]
    pub pid: Option<Pid>,
    /// The group of that process, instead of its number.
    #[command(flatten)]
    pub groups: GroupArgs,
    /// Use this playbook before the built-in one.
    #[arg(long, value_name = "FILE")]
    pub playbook: Option<PathBuf>,
    /// List the advice and the symptoms of the playbook.
    #[arg(long, conflicts_with_all = ["log", "pid", "GroupArgs", "class", "search"])]
    pub list: bool,
    /// Show the advice for a class.
    #[arg(long, value_name = "CLASS", conflicts_with_all = ["log", "pid", "GroupArgs", "search"])]
    pub class: Option<Class>,
    /// Show advice and symptoms that contain this word.
    #[arg(long, value_name = "WORD", conflicts_with_all = ["log", "pid", "GroupArgs"])]
    pub search: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
