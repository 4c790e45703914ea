//! Arguments of `fdguard watch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fdguard_core::config::Expectation;

use super::SelectArgs;
use super::duration::{parse, parse_positive};

/// Is it leaking, which class, how fast, when does it hit which wall?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard watch 1234                            live, until you press q
  fdguard watch 1234 --for 60s                  a verdict in a minute
  fdguard watch --name node --tree --for 10m    an agent host and its children
  fdguard watch 1234 --every 300s >> fd.log     one line every five minutes
  fdguard watch 1234 --expect 'sessions=25*3'   warn at twice what 25 sessions need
  fdguard watch 1234 --record day.jsonl.zst     keep it; judge it again with --from
Exit codes: 0 nothing found, 1 findings, 2 wrong usage, 3 could not look.")]
pub struct WatchArgs {
    /// Which processes.
    #[command(flatten)]
    pub select: SelectArgs,
    /// How long; until it is stopped or the process ends when absent.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive)]
    pub length: Option<Duration>,
    /// Time between two looks: 300s in the long run, 1s in the live view, --for decides otherwise.
    #[arg(long, value_name = "TIME", value_parser = parse_positive)]
    pub every: Option<Duration>,
    /// By how much the time between two looks may differ; a tenth of it from one minute on.
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub jitter: Option<Duration>,
    /// How it is to be judged.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// One JSON document, the diagnosis, as the last line.
    #[arg(long)]
    pub json: bool,
    /// With --json: a line for every look before it.
    #[arg(long, requires = "json")]
    pub samples: bool,
    /// Lines in place of the live view.
    #[arg(long)]
    pub plain: bool,
    /// The form of those lines.
    #[arg(long, value_enum, value_name = "FORM", default_value_t = LineForm::Fdguard)]
    pub format: LineForm,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write everything that is seen to a recording; `.zst` at its end compresses it.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Judge a recording in place of a running process.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pids", "pid", "name", "tree", "all", "record", "length", "every", "jitter"])]
    pub from: Option<PathBuf>,
    /// List the rules and what they look for.
    #[arg(long)]
    pub list_rules: bool,
}

/// How it is to be judged.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArgs {
    /// What it should need, such as `sessions=25*3`: a warning at twice as much.
    #[arg(help_heading = "Judgement", long, value_name = "NAME=UNITS*EACH")]
    pub expect: Vec<Expectation>,
    /// Warn above this many descriptors.
    #[arg(help_heading = "Judgement", long, value_name = "N")]
    pub max: Option<u64>,
    /// Warn above this share of a wall, in percent.
    #[arg(help_heading = "Judgement", long, value_name = "PERCENT")]
    pub warn_at: Option<f64>,
    /// From this share of a wall on it is critical, in percent.
    #[arg(help_heading = "Judgement", long, value_name = "PERCENT")]
    pub critical_at: Option<f64>,
    /// Levels, expectations and cleared suspects; `fdguard.toml` in this folder when absent.
    #[arg(help_heading = "Judgement", long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Advice of your own, tried before ours.
    #[arg(help_heading = "Judgement", long, value_name = "FILE")]
    pub playbook: Option<PathBuf>,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LineForm {
    /// `fd_state pid= count= highest= soft= percent= growing= verdict=`.
    Fdguard,
    /// `FD_STATE[watch]: count=, range=min-max, limit=`.
    Inxeption,
    /// `Resource monitor: open_fds=`.
    ResourceMonitor,
}
