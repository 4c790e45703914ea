//! Arguments of `fdguard inspect`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fdguard_core::units::parse_positive_duration;

/// Check a SQLite database or log for damage and list its holders.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard inspect state.db                     damage, its cause, and the holders
  fdguard inspect ~/.agent                     every database in a directory
  fdguard inspect session.jsonl                any file: foreign records and writers
  fdguard inspect --heal state.db              back up, repair a copy, check it, swap
  fdguard inspect --watch /srv/agent --for 1h  report the moment a database is damaged
Inspect opens files read-only and takes no locks, so it does not disturb programs that use them.
Exit codes: 0 nothing found, or healed; 1 damage or danger found, or healing failed; 3 could not
inspect.")]
pub struct InspectArgs {
    /// Files, or directories to search for databases.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Depth of SQLite's own check.
    ///
    /// The check runs on a copy if a process may be writing. Default: full up to 64 MiB, quick up
    /// to 512 MiB.
    #[arg(long, value_enum, value_name = "DEPTH")]
    pub check: Option<InspectCheck>,
    /// Repair a damaged database that no process has open.
    ///
    /// fdguard makes a backup, repairs a copy, checks it, and swaps it in.
    #[arg(long, conflicts_with = "watch")]
    pub heal: bool,
    /// Repair only a copy and report what would be done.
    #[arg(long, requires = "heal")]
    pub dry_run: bool,
    /// Backup directory; NAME.fdguard-backups next to the database by default.
    #[arg(long, value_name = "DIR", requires = "heal")]
    pub backup_dir: Option<PathBuf>,
    /// Watch databases; report when one is damaged and its holders.
    ///
    /// Press Ctrl-C to stop.
    #[arg(long)]
    pub watch: bool,
    /// Time to watch.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive_duration, requires = "watch")]
    pub length: Option<Duration>,
    /// Print one JSON document; with --watch, one per event.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Depth of SQLite's check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InspectCheck {
    /// Check the structure only.
    Quick,
    /// Also check that indexes match their tables.
    Full,
    /// Skip SQLite's check; examine only bytes and holders.
    None,
}
