//! Arguments of `fdguard diff`.

use std::path::PathBuf;

use clap::Args;

/// What changed between two snapshots?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard snap 1234 --json -o before.json
  fdguard diff before.json 1234        since then, the same process
  fdguard diff before.json after.json
  fdguard diff 1234 1300               one process against another")]
pub struct DiffArgs {
    /// The earlier one: a saved snapshot, or a process number.
    #[arg(value_name = "A")]
    pub before: String,
    /// The later one: a saved snapshot, or a process number.
    #[arg(value_name = "B")]
    pub after: String,
    /// One JSON document.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Exit with 1 when there is any difference.
    #[arg(long)]
    pub exit_code: bool,
}
