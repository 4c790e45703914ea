//! Requests to a session and their results.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a session runs, and how.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// The interpreter.
    pub program: SessionProgram,
    /// Working directory; default: the host's.
    pub dir: Option<PathBuf>,
    /// Environment variables to add to the host's environment.
    pub environment: Vec<(String, String)>,
    /// How it is spoken to.
    pub channel: Channel,
    /// What it may use.
    pub limits: SessionLimits,
    /// Bytes of output kept per command and stream, half from the start and half from the end.
    pub output_cap: usize,
    /// From its start to the first command that it can take.
    pub ready_within: Duration,
}

impl SessionSpec {
    /// With the defaults: a terminal of 80 by 24, no limits, 1 MiB of output, 10 s to get ready.
    #[must_use]
    pub fn new(program: SessionProgram) -> Self {
        Self {
            program,
            dir: None,
            environment: Vec::new(),
            channel: Channel::Pty {
                columns: 80,
                rows: 24,
            },
            limits: SessionLimits::default(),
            output_cap: 1 << 20,
            ready_within: Duration::from_secs(10),
        }
    }
}

/// An interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SessionProgram {
    /// `bash`, without the user's start files.
    Bash,
    /// `python3`: forked from the warm interpreter if the host has one, else started cold.
    Python,
    /// Any other interpreter.
    Repl(Repl),
}

/// An interpreter that can run a line which reports the end of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Repl {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Text written for each command. `{file}` is a file with the code, `{fd}` the descriptor of
    /// the side channel. The interpreter must write `{nonce}`, a space, the status and a newline to
    /// it.
    pub template: String,
}

/// Streams of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Channel {
    /// A terminal: both streams are merged.
    Pty {
        /// Width in columns.
        columns: u16,
        /// Height in rows.
        rows: u16,
    },
    /// Pipes: stdout and stderr are separate.
    Pipes,
}

/// Resource limits; a missing field means no limit beyond the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionLimits {
    /// Bytes of memory, all processes together.
    pub memory_bytes: Option<u64>,
    /// Seconds of CPU time, per process.
    pub cpu_seconds: Option<u64>,
    /// Number of processes.
    pub processes: Option<u32>,
    /// Descriptors per process.
    pub descriptors: Option<u64>,
}

/// A command.
#[derive(Clone, Debug)]
pub struct Exec {
    /// Its text, any number of lines.
    pub code: String,
    /// Time limit after which the command is interrupted.
    pub timeout: Duration,
}

impl Exec {
    /// With 60 seconds.
    #[must_use]
    pub fn new(code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            timeout: Duration::from_secs(60),
        }
    }
}

/// A piece of output as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where it came from.
    pub stream: ExecStream,
    /// Its bytes; a character may be cut.
    pub bytes: bytes::Bytes,
}

/// An output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExecStream {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error, if it is separate.
    Stderr,
}

/// Result of a command.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExecResult {
    /// Number of the command in the session, from 1.
    pub number: u64,
    /// How the command ended.
    pub outcome: ExecOutcome,
    /// Standard output, or all terminal output.
    pub stdout: ExecOutput,
    /// Standard error, if it is separate.
    pub stderr: Option<ExecOutput>,
    /// Output that processes of earlier commands wrote before this command started; never part of
    /// `stdout`.
    pub earlier: Option<ExecOutput>,
    /// Current directory of the session, if the interpreter reports it.
    #[serde(rename = "folder")]
    pub dir: Option<String>,
    /// Duration in milliseconds.
    pub ms: f64,
    /// The interpreter did not respond and was restarted: variables are lost.
    pub was_reset: bool,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "how")]
#[non_exhaustive]
pub enum ExecOutcome {
    /// It finished. For Python: 0, 1 after an exception, or the status of `sys.exit`.
    Exited {
        /// Exit status as in a shell: 128 plus the signal number after a signal.
        status: i32,
    },
    /// It was interrupted on request.
    Interrupted,
    /// It reached its time limit and was interrupted.
    TimedOut,
    /// The interpreter exited (`exit`, a crash).
    ProgramEnded {
        /// As above; `null` if unknown.
        status: Option<i32>,
    },
    /// The session exceeded a resource limit and was closed.
    LimitReached,
}

/// Captured output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExecOutput {
    /// Output that was kept. Invalid UTF-8 is replaced. A marker line shows where output was
    /// dropped.
    pub text: String,
    /// Total number of bytes written.
    pub bytes: u64,
    /// What was dropped from the middle.
    pub dropped: Option<DroppedOutput>,
}

/// Dropped output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DroppedOutput {
    /// Number of bytes.
    pub bytes: u64,
    /// Number of newlines among them.
    pub lines: u64,
    /// SHA-256 of the dropped bytes, in hex.
    pub sha256: String,
}
