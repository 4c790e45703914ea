//! Arguments of `fdguard explain`.

use std::path::PathBuf;

use clap::Args;
use fdguard_core::{Class, Pid};

use super::select::parse_pid;

/// Which of these log lines are really descriptor exhaustion?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard explain /var/log/agent.log             which lines, which wall, what next
  journalctl -u agent | fdguard explain -p 1234  and who holds the descriptors
  fdguard explain --class pipe                   who usually leaves pipes open, and what to change
  fdguard explain --search zombie                what the playbook knows about a word
Exit codes: 1 symptoms found, 0 none found, 3 log or process could not be read.")]
pub struct ExplainArgs {
    /// The log; standard input when absent or `-`.
    #[arg(value_name = "LOG")]
    pub log: Option<PathBuf>,
    /// Say also what this process holds, and who usually leaves that open.
    #[arg(short, long, value_name = "PID", value_parser = parse_pid, allow_negative_numbers = true)]
    pub pid: Option<Pid>,
    /// A playbook of your own: its entries are tried before the built-in ones.
    #[arg(long, value_name = "FILE")]
    pub playbook: Option<PathBuf>,
    /// List the playbook: every advice and every symptom.
    #[arg(long, conflicts_with_all = ["log", "pid", "class", "search"])]
    pub list: bool,
    /// Show the advice for a class.
    #[arg(long, value_name = "CLASS", conflicts_with_all = ["log", "pid", "search"])]
    pub class: Option<Class>,
    /// Show advice and symptoms with this word.
    #[arg(long, value_name = "WORD", conflicts_with_all = ["log", "pid"])]
    pub search: Option<String>,
    /// One JSON document.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
