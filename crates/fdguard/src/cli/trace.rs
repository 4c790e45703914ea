//! Arguments of `fdguard trace`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use fdguard_core::Pid;
use fdguard_core::proof::Allowance;
use fdguard_core::units::parse_positive_duration;

use super::SettingsArgs;
use super::protect::ProtectArgs;
use super::select::{SelectArgs, number_completer, parse_pid};

/// Find the line of code that opened what is still open.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard trace -- ./server --port 8080        trace until it exits; report to stderr
  fdguard trace --for 60s -- ./server          stop it after a minute
  fdguard trace 1234                           attach to a running program; Ctrl-C detaches
  fdguard trace --for 60s --name nginx         the same for every nginx, for a minute
  sudo fdguard trace --all --for 60s           every process of the host, by the kernel
  fdguard trace --json -o trace.json -- make check
  fdguard trace --html trace.html --pprof trace.pb.gz -- ./server
  fdguard trace --report 1234                  what a traced program has open now
Exit codes: the program's own if it failed, 128+n if signal n killed it, 125 if it could not be
traced, 126 if it could not be executed, 127 if it was not found; otherwise 0 nothing found,
1 findings. For a running process: 0, 1, or 3 if it could not be attached to or is not traced.")]
pub struct TraceArgs {
    /// Stop the program (SIGTERM) after this time, or detach from a running one.
    ///
    /// By default fdguard waits for the program to exit; from a running one Ctrl-C detaches. With
    /// --report: how long to observe it.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive_duration)]
    pub length: Option<Duration>,
    /// Sampling interval of the external probe.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_positive_duration)]
    pub every: Duration,
    /// Thresholds.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Accept a source line (`cache.py:31`), a rule (`lock-drop`), a class (`sqlite-*`) or a path.
    /// Accepted findings are shown but not counted.
    #[arg(long, value_name = "WHAT")]
    pub allow: Vec<Allowance>,
    /// Print the diagnosis as one JSON document, on the last line.
    #[arg(long)]
    pub json: bool,
    /// Write the report to a file; stdout and stderr belong to a launched program.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Further report formats.
    #[command(flatten)]
    pub outputs: OutputArgs,
    /// Exit code for findings when the program itself succeeds.
    #[arg(long, value_name = "N", default_value_t = crate::exit::FINDINGS)]
    pub error_exitcode: u8,
    /// Log growing sites, verdicts and children as they appear.
    ///
    /// The log goes to stderr, or to the file of -o.
    #[arg(long, conflicts_with = "report")]
    pub follow: bool,
    /// Also show which object of a Python, Java or Node program holds each descriptor, and what
    /// keeps it alive.
    ///
    /// A program whose descriptors grow is stopped for a few milliseconds every two seconds.
    #[arg(long, conflicts_with_all = ["report", "all"])]
    pub why: bool,
    /// Show a live view of growing sites. A program that fdguard starts must not use the terminal.
    #[arg(long, conflicts_with_all = ["json", "follow"])]
    pub live: bool,
    /// Protection; without it the program's behaviour does not change.
    #[command(flatten)]
    pub protect: ProtectArgs,
    /// Do not open the inspector of a running Node program: no JavaScript lines of it, and nothing
    /// on its stderr.
    #[arg(long, conflicts_with_all = ["command", "report"])]
    pub no_inspector: bool,
    /// Report what a process that is already traced has open now, with its children. PID is the
    /// program, a child, or the tracer.
    #[arg(long, value_name = "PID", value_parser = parse_pid, add = number_completer(), conflicts_with_all = ["command", "pids", "pid", "name", "tree", "container", "unit", "pod"])]
    pub report: Option<Pid>,
    /// How to trace; by default what suits the program.
    ///
    /// `launch` starts it with fdguard's library, `attach` puts the library into a running one,
    /// and `ebpf` lets programs in the kernel report what it does: for programs that cannot load
    /// the library (Go, static, musl, sandboxes, other users), and for --all. It needs root, or
    /// CAP_BPF and CAP_PERFMON.
    #[arg(long, value_name = "SOURCE", conflicts_with = "report")]
    pub source: Option<SourceArg>,
    /// Running programs to attach to.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Program to run, with its arguments.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pids", "pid", "name", "tree", "container", "unit", "pod", "all"])]
    pub command: Vec<OsString>,
}

/// How to trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceArg {
    /// fdguard's library, in a program that fdguard starts.
    Launch,
    /// fdguard's library, put into a running program.
    Attach,
    /// Programs in the kernel.
    Ebpf,
}

/// Additional report files. They are opened before the program starts.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputArgs {
    /// Write a web page with findings, sites, flame graph and timeline.
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub html: Option<PathBuf>,
    /// Write a flame graph (SVG) of the open descriptors.
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub flamegraph: Option<PathBuf>,
    /// Write folded stacks of the open descriptors: `outer;inner COUNT`.
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub folded: Option<PathBuf>,
    /// Write a pprof profile (gzipped protobuf) of open, opened and closed descriptors.
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub pprof: Option<PathBuf>,
}

/// Parses a file name. `-` is refused: stdout and stderr may belong to the traced program.
fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("stdout belongs to the program: name a file"),
        false => Ok(path),
    })
}
