//! What a session is asked for, and what it answers.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a session runs, and how.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// The interpreter.
    pub program: SessionProgram,
    /// Where it starts; the host's folder when absent.
    pub folder: Option<PathBuf>,
    /// Variables besides the host's own environment.
    pub environment: Vec<(String, String)>,
    /// How it is spoken to.
    pub channel: Channel,
    /// What it may use.
    pub limits: SessionLimits,
    /// Bytes of output that a command's result keeps of each stream, half from its begin and half from its end.
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
            folder: None,
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
    /// `python3`: from the warm pool where the host has one, else started anew.
    Python,
    /// Any other, by configuration.
    Repl(Repl),
}

/// An interpreter that can run a line which tells us that a command has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Repl {
    /// The program and its words.
    pub command: Vec<String>,
    /// What is written for each command. `{file}` is a file with the command's text, `{fd}` the number of the side channel, `{nonce}` what must be written to
    /// it, followed by a space, a status and a line's end.
    pub template: String,
}

/// How a program is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Channel {
    /// A terminal: both streams are one, as people see them.
    Pty {
        /// Its width.
        columns: u16,
        /// Its height.
        rows: u16,
    },
    /// Pipes: both streams apart.
    Pipes,
}

/// What a session may use; absent is as the host may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionLimits {
    /// Bytes of memory of all its processes together.
    pub memory_bytes: Option<u64>,
    /// Seconds on a core, of each process.
    pub cpu_seconds: Option<u64>,
    /// Processes at a time.
    pub processes: Option<u32>,
    /// Descriptors of each process.
    pub descriptors: Option<u64>,
}

/// A command.
#[derive(Clone, Debug)]
pub struct Exec {
    /// Its text, any number of lines.
    pub code: String,
    /// From its begin to the interrupt.
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

/// A stream of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExecStream {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error, where it is apart.
    Stderr,
}

/// What a command came to.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExecResult {
    /// Counts the commands of a session, from 1.
    pub number: u64,
    /// How it ended.
    pub outcome: ExecOutcome,
    /// What it said, or all that the terminal showed.
    pub stdout: ExecOutput,
    /// What it said on standard error, where that is apart.
    pub stderr: Option<ExecOutput>,
    /// What processes of earlier commands said before this one began; never part of `stdout`.
    pub earlier: Option<ExecOutput>,
    /// Where the session is now, if it says so.
    pub folder: Option<String>,
    /// From begin to end.
    pub ms: f64,
    /// The program did not come back and was replaced by a new one: variables are gone.
    pub was_reset: bool,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "how")]
#[non_exhaustive]
pub enum ExecOutcome {
    /// By itself, with this status. Python: 0, 1 after an exception, the status of `sys.exit`.
    Exited {
        /// As a shell shows it: 128 and the signal's number after a signal.
        status: i32,
    },
    /// Somebody asked for its end.
    Interrupted,
    /// It took longer than it may.
    TimedOut,
    /// The program itself ended meanwhile (`exit`, a crash), with this status.
    ProgramEnded {
        /// As above; `null` when unknown.
        status: Option<i32>,
    },
    /// It used more than the session may, and the session was ended for it.
    LimitReached,
}

/// What was said, with an honest gap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExecOutput {
    /// What is kept; bytes that are no text are replaced. Where something is missing, a line in the middle says so.
    pub text: String,
    /// All bytes that were said.
    pub bytes: u64,
    /// What is missing from the middle.
    pub dropped: Option<DroppedOutput>,
}

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DroppedOutput {
    /// How many bytes.
    pub bytes: u64,
    /// How many line ends among them.
    pub lines: u64,
    /// SHA-256 of them, in hex.
    pub sha256: String,
}
