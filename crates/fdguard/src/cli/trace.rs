//! Arguments of `fdguard trace`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use fdguard_core::proof::Allowance;

use super::SettingsArgs;
use super::duration::parse_positive;
use super::protect::ProtectArgs;

/// Which line of code opened what is still open?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard trace -- ./server --port 8080        until it ends; the report goes to stderr
  fdguard trace --for 60s -- ./server          end it after a minute
  fdguard trace --json -o trace.json -- make check
  fdguard trace --html trace.html --pprof trace.pb.gz -- ./server
  fdguard trace --report 1234                  what a traced program holds now, from another terminal
Exit codes: that of the program when it failed, 128+n when signal n ended it, 125 when it could not be
traced, 126 when it could not be run, 127 when it was not found; else 0 nothing found, 1 findings. With
--report: 0, 1, or 3 when there is nothing to look at.")]
pub struct TraceArgs {
    /// End the program (SIGTERM) after this time; until it ends by itself when absent. With --report: how long to look.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive)]
    pub length: Option<Duration>,
    /// Time between two looks from outside.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_positive)]
    pub every: Duration,
    /// How it is to be judged.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Accept what a line did (`cache.py:31`), what a rule finds (`lock-drop`), a class (`sqlite-*`) or a path: shown, not counted.
    #[arg(long, value_name = "WHAT")]
    pub allow: Vec<Allowance>,
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
    /// Say on stderr, or in the file of -o, what happens while it does: sites that begin to grow, verdicts, children.
    #[arg(long, requires = "command")]
    pub follow: bool,
    /// Show the sites that grow now: of a program whose input and output are not the terminal, or with --report.
    #[arg(long, conflicts_with_all = ["json", "follow"])]
    pub live: bool,
    /// Protection; without it nothing is changed in the program.
    #[command(flatten)]
    pub protect: ProtectArgs,
    /// What this traced process holds right now, with its children: the program, a child, or the tracer.
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "pid", "named"])]
    pub report: Option<u32>,
    /// The same, of a process that is traced already.
    #[arg(value_name = "PID", value_parser = parse_pid, conflicts_with_all = ["command", "named"])]
    pub pid: Option<u32>,
    /// The same, named by a flag.
    #[arg(
        short = 'p',
        long = "pid",
        id = "named",
        value_name = "PID",
        conflicts_with = "command"
    )]
    pub named: Option<u32>,
    /// The program and its arguments.
    #[arg(last = true, required_unless_present_any = ["report", "pid", "named"], value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl TraceArgs {
    /// The process that runs already, where one was named.
    #[must_use]
    pub fn traced_pid(&self) -> Option<u32> {
        self.report.or(self.pid).or(self.named)
    }
}

fn parse_pid(text: &str) -> Result<u32, String> {
    let hint = || format!("no process number; a program comes after --: fdguard trace -- {text}");
    text.parse().ok().ok_or_else(hint)
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
