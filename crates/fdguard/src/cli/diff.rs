//! Arguments of `fdguard diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What changed between two snapshots, or over several phases?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard snap 1234 --json -o before.json
  fdguard diff before.json 1234        since then, the same process
  fdguard diff before.json after.json
  fdguard diff 1234 1300               one process against another
  fdguard diff baseline.json during.json after.json --fail-on leftover
                                       is it back to its baseline?
  fdguard diff idle=a.json load=b.json now=1234")]
pub struct DiffArgs {
    /// The earlier one: a saved snapshot, or a process number; NAME=FILE names the phase.
    #[arg(value_name = "A")]
    pub before: String,
    /// The later one, in the same form.
    #[arg(value_name = "B")]
    pub after: String,
    /// Later ones: phases in their order, all of one process.
    #[arg(value_name = "C")]
    pub more: Vec<String>,
    /// One JSON document.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Exit with 1 when there is any difference.
    #[arg(long)]
    pub exit_code: bool,
    /// Exit with 1 when something that was opened since the first is still there in the last.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub fail_on: Option<FailOnDiff>,
}

/// What of a difference is a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOnDiff {
    /// Descriptors opened since the first snapshot and still open in the last.
    Leftover,
}
