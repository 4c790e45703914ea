//! Arguments of `fdguard inspect`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration::parse_positive;

/// Is this file damaged, by what, and who holds it?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard inspect state.db                     is it damaged, by what, who holds it
  fdguard inspect ~/.agent                     every database of a folder
  fdguard inspect session.jsonl                any file: foreign records in it, who can write it
  fdguard inspect --heal state.db              backup, work on a copy, check, swap
  fdguard inspect --watch /srv/agent --for 1h  the first moment at which a database goes bad
It opens files for reading alone and takes no lock, so that it never disturbs who works with them.
Exit codes: 0 nothing found, or healed; 1 damage or danger, or not to be healed; 3 could not look.")]
pub struct InspectArgs {
    /// Files; of a folder every database in it.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How much SQLite itself is to check, on a copy where somebody may be writing. When absent: full up to 64 MiB, quick up to 512 MiB.
    #[arg(long, value_enum, value_name = "HOW")]
    pub check: Option<InspectCheck>,
    /// Heal a damaged database that nobody holds: backup, work on a copy, check, swap.
    #[arg(long, conflicts_with = "watch")]
    pub heal: bool,
    /// Heal a copy and say what would be done; nothing is changed.
    #[arg(long, requires = "heal")]
    pub dry_run: bool,
    /// Where backups go; NAME.fdguard-backups beside the database when absent.
    #[arg(long, value_name = "DIR", requires = "heal")]
    pub backup_dir: Option<PathBuf>,
    /// Watch the databases and tell the first moment at which one goes bad, and who held it. Ctrl-C ends it.
    #[arg(long)]
    pub watch: bool,
    /// How long to watch.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive, requires = "watch")]
    pub length: Option<Duration>,
    /// One JSON document; with --watch one for each event.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// How much SQLite is to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InspectCheck {
    /// The structure.
    Quick,
    /// And whether indexes and tables agree.
    Full,
    /// Nothing: bytes and holders alone.
    None,
}
