//! Arguments of `fdguard trace`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};

use super::SettingsArgs;
use super::duration::parse_positive;

/// Which line of code opened what is still open?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard trace -- ./server --port 8080        until it ends; the report goes to stderr
  fdguard trace --for 60s -- ./server          end it after a minute
  fdguard trace --json -o trace.json -- make check
  fdguard trace --html trace.html --pprof trace.pb.gz -- ./server
Exit codes: that of the program when it failed, 128+n when signal n ended it, 125 when it could not be
traced, 126 when it could not be run, 127 when it was not found; else 0 nothing found, 1 findings.")]
pub struct TraceArgs {
    /// End the program (SIGTERM) after this time; until it ends by itself when absent.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive)]
    pub length: Option<Duration>,
    /// Time between two looks from outside.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_positive)]
    pub every: Duration,
    /// How it is to be judged.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// One JSON document, the diagnosis, as the last line.
    #[arg(long)]
    pub json: bool,
    /// Write the result to a file: stdout and stderr are the program's.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The same in other forms.
    #[command(flatten)]
    pub outputs: OutputArgs,
    /// Exit code when something is found and the program itself succeeded.
    #[arg(long, value_name = "N", default_value_t = crate::exit::FINDINGS)]
    pub error_exitcode: u8,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Files beside the report. They are opened before the program starts.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputArgs {
    /// Write one page with verdict, hazards, findings, sites, flame graph and timeline.
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub html: Option<PathBuf>,
    /// Write a flame graph (SVG) of what is still open.
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub flamegraph: Option<PathBuf>,
    /// Write folded stacks: `outer;inner COUNT` of what is still open.
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub folded: Option<PathBuf>,
    /// Write a profile for pprof (protocol buffer, gzip): open, opened and closed descriptors.
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub pprof: Option<PathBuf>,
}

/// A file: stdout and stderr are the traced program's.
fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("stdout is the program's: name a file"),
        false => Ok(path),
    })
}
