//! Arguments of `fdguard archive`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fdguard_core::units::parse_duration;

/// Move logs to an archive without losing a line.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard archive session.jsonl --to /srv/archive       move it once no process can write it
  fdguard archive logs/*.jsonl --to archive --wait 60s  give writers a minute to exit
  fdguard archive logs/*.jsonl --to archive --wait 0 --json
                                                        try once; one receipt per file
fdguard does not move a file that a process has open for writing or has locked; it names those
processes. Stop them with SIGTERM first, so that they flush their buffers.
Exit codes: 0 all files archived; 1 some files left in place; 3 some files could not be examined.")]
pub struct ArchiveArgs {
    /// Files to archive.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Archive directory; created if missing, may be on another file system.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Time to wait for writers and locks, for all files together; 0 tries once.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub wait: Duration,
    /// Refuse files outside this directory, after resolving symbolic links.
    #[arg(long, value_name = "DIR")]
    pub within: Option<PathBuf>,
    /// Archive the target of a symbolic link instead of refusing the link.
    #[arg(long)]
    pub follow: bool,
    /// Refuse a file whose name exists in the archive instead of storing it as NAME.1.
    #[arg(long)]
    pub no_rename: bool,
    /// If the kernel refuses a lease, rely on a scan of the processes fdguard may inspect.
    #[arg(long)]
    pub trust_scan: bool,
    /// Print one JSON document with a receipt for each file.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
