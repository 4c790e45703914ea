//! Arguments of `fdguard diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Compare two snapshots, or the phases of a run.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard snap 1234 --json -o before.json
  fdguard diff before.json 1234        compare with the process now
  fdguard diff before.json after.json
  fdguard diff 1234 1300               compare two processes
  fdguard diff baseline.json during.json after.json --fail-on leftover
                                       check the return to the baseline
  fdguard diff idle=a.json load=b.json now=1234")]
pub struct DiffArgs {
    /// Earlier snapshot: a file or a PID; NAME=FILE names the phase.
    #[arg(value_name = "A")]
    pub before: String,
    /// Later snapshot, in the same form.
    #[arg(value_name = "B")]
    pub after: String,
    /// Further snapshots of the same process, in order.
    #[arg(value_name = "C")]
    pub more: Vec<String>,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Exit with 1 if there is any difference.
    #[arg(long)]
    pub exit_code: bool,
    /// Exit with 1 if descriptors opened since the first snapshot remain in the last.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub fail_on: Option<FailOnDiff>,
}

/// Which differences count as findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOnDiff {
    /// Descriptors opened since the first snapshot and still open in the last.
    Leftover,
}
