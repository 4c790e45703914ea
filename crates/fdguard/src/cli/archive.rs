//! Arguments of `fdguard archive`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration::parse;

/// Move these logs into an archive without losing a line.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard archive session.jsonl --to /srv/archive           wait until nobody can write it, then move it
  fdguard archive logs/*.jsonl --to archive --wait 60s      give the writers a minute to end
  fdguard archive logs/*.jsonl --to archive --wait 0 --json ask once, with a receipt for each file
A file that somebody can write, or has a lock on, stays where it is, and its writers are named. End them with
TERM first: what is in a program's own buffer, only that program can write.
Exit codes: 0 all are archived; 1 some stay where they are; 3 some could not be looked at.")]
pub struct ArchiveArgs {
    /// The files.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The archive, on this file system or another one; made where it is missing.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// How long to wait for writers and locks, all files together; 0 asks once.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse)]
    pub wait: Duration,
    /// Refuse files that are not in this folder or below it, wherever links lead.
    #[arg(long, value_name = "DIR")]
    pub within: Option<PathBuf>,
    /// Archive the file that a symbolic link leads to; links are refused otherwise.
    #[arg(long)]
    pub follow: bool,
    /// Refuse a file whose name is taken in the archive, instead of calling it NAME.1.
    #[arg(long)]
    pub no_rename: bool,
    /// Where the kernel gives no lease: be content with those processes that may be looked at.
    #[arg(long)]
    pub trust_scan: bool,
    /// One JSON document with a receipt for each file.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
