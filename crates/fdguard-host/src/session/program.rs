//! How each interpreter is started and receives commands.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fdguard_process::plan::{self, InheritedFd, Plan, SessionKind};
use fdguard_process::pty::{Pty, Size};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::pipe::{PipeFlags, pipe_with};

use super::fd_count::FdCount;
use super::streams::Streams;
use super::types::{Channel, Repl, SessionLimits, SessionProgram, SessionSpec};
use crate::Error;
use crate::environment::{inherited, is_fit};

const BASH_START: &str = include_str!("driver/bash.sh");
const BASH_LOOP: &str = include_str!("driver/bash_loop.sh");

/// The driver of a Python session: it defines `_fdguard_drive(channel, ready)`, which takes the
/// descriptor of the side channel and the nonce (bytes) to send when it is ready.
pub const PYTHON_DRIVER: &str = include_str!("driver/python.py");

/// The built-in interpreters do not start with fewer descriptors: bash has its channel at number
/// 19.
const FEWEST: u64 = 24;
/// The number of the side channel in the program.
const SIDE: u32 = plan::FIRST_HANDED;

/// Both ends of a program's streams.
pub(super) struct Ends {
    pub(super) ours: Streams,
    pub(super) theirs: [Arc<OwnedFd>; 3],
    pub(super) is_terminal: bool,
}

/// Opens the streams that a session shall have.
pub(super) fn ends(spec: &SessionSpec, held: &FdCount) -> Result<Ends, Error> {
    match spec.channel {
        Channel::Pty { columns, rows } => {
            let pty =
                Pty::open(Size { columns, rows }).map_err(Error::io("cannot open a terminal"))?;
            let slave = Arc::new(pty.slave);
            Ok(Ends {
                ours: Streams::terminal(pty.master, held)?,
                theirs: [Arc::clone(&slave), Arc::clone(&slave), slave],
                is_terminal: true,
            })
        }
        Channel::Pipes => pipes(matches!(spec.program, SessionProgram::Repl(_)), held)
            .map_err(Error::io("cannot open pipes"))?,
    }
}

/// Pipes for both outputs. Only a program that reads commands from its input gets an input pipe;
/// for others the input is empty.
fn pipes(with_input: bool, held: &FdCount) -> std::io::Result<Result<Ends, Error>> {
    let (out, their_out) = pipe_with(PipeFlags::CLOEXEC)?;
    let (err, their_err) = pipe_with(PipeFlags::CLOEXEC)?;
    let (their_input, input) = if with_input {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        (theirs, Some(ours))
    } else {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        (open(c"/dev/null", flags, Mode::empty())?, None)
    };
    for ours in [Some(&out), Some(&err), input.as_ref()]
        .into_iter()
        .flatten()
    {
        fcntl_setfl(ours, fcntl_getfl(ours)? | OFlags::NONBLOCK)?;
    }
    Ok(Streams::pipes(out, err, input, held).map(|ours| Ends {
        ours,
        theirs: [their_input, their_out, their_err].map(Arc::new),
        is_terminal: false,
    }))
}

/// The start plan: its own session, with the side channel at number 3 and no other descriptor of
/// the host.
pub(super) fn plan(
    spec: &SessionSpec,
    dir: Option<PathBuf>,
    ends: &Ends,
    side: OwnedFd,
    ready: &str,
) -> Plan {
    let limits = limits(spec.limits);
    Plan {
        command: command(&spec.program, ready),
        environment: environment(spec, ends.is_terminal, ready),
        dir,
        stdio: ends.theirs.clone().map(Some),
        handed: vec![InheritedFd {
            fd: Arc::new(side),
            name: None,
        }],
        soft_limit: None,
        group: SessionKind::Session,
        cgroup: limits.memory.is_some() || limits.processes.is_some(),
        terminal: ends.is_terminal,
        limits,
    }
}

fn command(program: &SessionProgram, ready: &str) -> Vec<OsString> {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect();
    match program {
        SessionProgram::Bash => words(&["bash", "--noprofile", "--norc", "--noediting", "-i"]),
        SessionProgram::Python => {
            let text = format!("{PYTHON_DRIVER}\n_fdguard_drive({SIDE}, b'{ready}')\n");
            words(&["python3", "-c", &text])
        }
        SessionProgram::Repl(repl) => repl.command.iter().map(OsString::from).collect(),
    }
}

/// The host's environment, then settings for a terminal without a person, then the requested
/// variables.
fn environment(spec: &SessionSpec, is_terminal: bool, ready: &str) -> Vec<(OsString, OsString)> {
    let mut variables: BTreeMap<OsString, OsString> = inherited().into_iter().collect();
    let mut set = |name: &str, value: &str| variables.insert(name.into(), value.into());
    if is_terminal {
        // A pager would wait for a key that is never pressed.
        for (name, value) in [("TERM", "dumb"), ("PAGER", "cat"), ("GIT_PAGER", "cat")] {
            set(name, value);
        }
    }
    for (name, value) in &spec.environment {
        set(name, value);
    }
    if spec.program == SessionProgram::Bash {
        // One line further down, bash counts the lines of a command from 1.
        set("PROMPT_COMMAND", &format!("\n{}", BASH_LOOP.trim_end()));
        set("__fdguard_start", &BASH_START.replace("@READY@", ready));
    }
    variables.into_iter().collect()
}

fn limits(asked: SessionLimits) -> plan::TreeLimits {
    plan::TreeLimits {
        memory: asked.memory_bytes,
        cpu: asked.cpu_seconds.map(Duration::from_secs),
        processes: asked.processes,
        descriptors: asked.descriptors,
    }
}

/// The longest text that fits the channel; `version` is what the program reported when it was
/// ready.
pub(super) fn inline_limit(program: &SessionProgram, version: i32) -> usize {
    match program {
        // The room of bash's reads: a longer datagram would be cut.
        SessionProgram::Bash if version >= 501 => 4096,
        SessionProgram::Bash => 128,
        SessionProgram::Python => 1 << 16,
        SessionProgram::Repl(_) => 0,
    }
}

/// The text written to the input of a configured interpreter.
pub(super) fn filled(repl: &Repl, file: &Path, nonce: &str) -> String {
    let text = repl
        .template
        .replace("{file}", &file.to_string_lossy())
        .replace("{fd}", &SIDE.to_string())
        .replace("{nonce}", nonce);
    if text.ends_with('\n') {
        text
    } else {
        text + "\n"
    }
}

/// One line for a request that cannot be.
pub(super) fn check(spec: &SessionSpec) -> Result<(), Error> {
    if let SessionProgram::Repl(repl) = &spec.program {
        if repl.command.is_empty() {
            return Err(Error::Bad(
                "program.repl.command must not be empty".to_owned(),
            ));
        }
        for part in ["{file}", "{fd}", "{nonce}"] {
            if !repl.template.contains(part) {
                return Err(Error::Bad(format!(
                    "program.repl.template must contain {part}"
                )));
            }
        }
    }
    let is_ours = !matches!(spec.program, SessionProgram::Repl(_));
    let few = spec
        .limits
        .descriptors
        .filter(|most| is_ours && *most < FEWEST);
    if let Some(few) = few {
        let text =
            format!("limits.descriptors is {few}, but the interpreter needs at least {FEWEST}");
        return Err(Error::Bad(text));
    }
    let variables = &mut spec.environment.iter();
    if let Some((name, _)) = variables.find(|(name, value)| !is_fit(name, value)) {
        return Err(Error::Bad(format!("invalid environment variable {name:?}")));
    }
    Ok(())
}
