//! A helper program with a deadline that leaves nothing behind: it writes evidence, drains or
//! probes a service.
//!
//! It is a tree with its own keeper, so that nothing it starts escapes, whatever signals are
//! blocked or ignored here. Polling it never blocks. A helper that is dropped before it is gone is
//! killed, and that drop may block briefly: see [`Tree`].

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_core::units;
use fdguard_process::environment::{for_program, last_of_each};
use fdguard_process::plan::{Plan, SessionKind};
use fdguard_process::tree::{Exit, StartError, StopPlan, Tree, TreeEvent};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::poll::{Interest, Readiness};

#[cfg(test)]
pub(crate) mod tests;

/// How much of its output is kept, from the end.
const KEPT: usize = 4096;
/// How much of its last line is reported, from the start.
const LONGEST_WORDS: usize = 200;
/// A helper that never stops writing is read again at the next poll. A full pipe is read in half of
/// these.
const READS: usize = 32;
const KILL: i32 = 9;
const AT_ONCE: StopPlan = StopPlan {
    signal: KILL,
    grace: Duration::ZERO,
};

/// What to run.
#[derive(Debug)]
pub(crate) struct Helper {
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// The last value of a name wins. Variables meant for fdguard alone are omitted.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Its working directory; fdguard's if absent.
    pub(crate) dir: Option<PathBuf>,
    /// Which part of its output is kept; the rest is discarded.
    pub(crate) heard: HelperOutput,
}

/// Which of its output is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelperOutput {
    /// Its standard error.
    Errors,
    /// Everything.
    All,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelperEnd {
    /// It exited with this status.
    Code(u8),
    /// This signal terminated it.
    Signal(i32),
    /// It was terminated: the time was up.
    TimeUp,
    /// Its keeper was killed.
    Lost,
}

/// A running helper, and its deadline.
#[derive(Debug)]
pub(crate) struct Bounded {
    tree: Tree,
    /// Absent if there was no room for it, and after its end.
    output: Option<OwnedFd>,
    said: Vec<u8>,
    within: Duration,
    deadline: Instant,
    /// Once this is known, everything that is left is being killed.
    ended: Option<HelperEnd>,
    was_told: bool,
    is_gone: bool,
}

impl Helper {
    /// With fdguard's environment and directory; its stderr is read.
    pub(crate) fn new(command: Vec<OsString>) -> Self {
        Self {
            command,
            environment: std::env::vars_os().collect(),
            dir: None,
            heard: HelperOutput::Errors,
        }
    }

    /// The same for a shell command.
    pub(crate) fn shell(line: &str) -> Self {
        Self::new(["/bin/sh", "-c", line].map(OsString::from).to_vec())
    }

    /// With null input and output.
    fn plan(self, null: &Arc<OwnedFd>) -> Plan {
        Plan {
            command: self.command,
            environment: for_program(last_of_each(self.environment)),
            dir: self.dir,
            stdio: nowhere(null),
            handed: Vec::new(),
            soft_limit: None,
            group: SessionKind::Session,
            cgroup: false,
            terminal: false,
            limits: fdguard_process::plan::TreeLimits::default(),
        }
    }
}

impl Bounded {
    /// Starts it. `null` is kept open for when the host's table is full: duplicating an open file
    /// needs no entry there. For that case the caller also lends its reserve; a start needs seven
    /// numbers, four if its output is not read.
    pub(crate) fn start(
        helper: Helper,
        null: &OwnedFd,
        now: Instant,
        within: Duration,
    ) -> Result<Self, StartError> {
        let null = null.try_clone().map_err(|source| StartError::Refused {
            step: "a copy of /dev/null",
            source,
        })?;
        let (null, heard) = (Arc::new(null), helper.heard);
        let mut plan = helper.plan(&null);
        let mut output = pipe().ok().map(|(ours, theirs)| {
            heard.put(theirs, &mut plan);
            ours
        });
        let tree = match Tree::start(&plan) {
            // There is room for the pipe or for the tree, not both: start it without reading its
            // output.
            Err(StartError::Refused { source, .. }) if output.is_some() && is_full(&source) => {
                output = None;
                plan.stdio = nowhere(&null);
                Tree::start(&plan)?
            }
            started => started?,
        };
        Ok(Self {
            tree,
            output,
            said: Vec::new(),
            within,
            deadline: now + within,
            ended: None,
            was_told: false,
            is_gone: false,
        })
    }

    /// Registers its descriptors and deadline; nothing when it is gone.
    pub(crate) fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        if self.is_gone {
            return;
        }
        wants.tree(&self.tree);
        if let Some(output) = &self.output {
            wants.read(output.as_fd());
        }
        if !self.was_told {
            wants.until(self.deadline);
        }
    }

    /// Returns its end, once: when nothing of it is left, or at the deadline, when what is left is
    /// being killed.
    pub(crate) fn poll(&mut self, now: Instant, ready: &Readiness) -> Option<HelperEnd> {
        if self.output.as_ref().is_some_and(|output| ready.has(output)) {
            self.listen();
        }
        while let Some(told) = self.tree.told() {
            let ended = match told {
                TreeEvent::MainEnded { exit, .. } => exit.into(),
                TreeEvent::Empty { exit, .. } => {
                    self.is_gone = true;
                    exit.into()
                }
                _ => {
                    self.is_gone = true;
                    HelperEnd::Lost
                }
            };
            self.end(ended);
        }
        let is_late = now >= self.deadline;
        if is_late {
            self.end(HelperEnd::TimeUp);
        }
        if self.was_told || !(self.is_gone || is_late) {
            return None;
        }
        self.listen();
        self.was_told = true;
        self.ended
    }

    /// Whether nothing of it is left: only then does dropping it not block.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// How it ended and its last line of output.
    pub(crate) fn account(&self, ended: HelperEnd) -> String {
        let how = match ended {
            HelperEnd::Code(code) => format!("exited with status {code}"),
            HelperEnd::Signal(signal) => format!("was killed by signal {signal}"),
            HelperEnd::TimeUp => format!(
                "did not finish within {}",
                units::exact_duration(self.within)
            ),
            HelperEnd::Lost => "was lost: its keeper process was killed".to_owned(),
        };
        match self.last_words() {
            Some(words) => format!("{how}: {words}"),
            None => how,
        }
    }

    /// Its last line of output, sanitized.
    fn last_words(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.said);
        let mut lines = text.lines().rev().map(str::trim);
        let last = lines.find(|line| !line.is_empty())?;
        let safe = last.chars().map(|c| if c.is_control() { '?' } else { c });
        Some(safe.take(LONGEST_WORDS).collect())
    }

    /// The first reason wins.
    fn end(&mut self, how: HelperEnd) {
        if self.ended.is_none() {
            self.ended = Some(how);
            self.tree.stop(AT_ONCE);
        }
    }

    /// Reads its output, so that it cannot block on a full pipe.
    fn listen(&mut self) {
        let Some(output) = &self.output else { return };
        let mut buffer = [0; 4096];
        for _ in 0..READS {
            match rustix::io::read(output, &mut buffer) {
                Ok(0) => {
                    self.output = None;
                    return;
                }
                Ok(count) => {
                    self.said.extend_from_slice(&buffer[..count]);
                    let surplus = self.said.len().saturating_sub(KEPT);
                    self.said.drain(..surplus);
                }
                Err(Errno::INTR) => {}
                Err(_nothing_yet) => return,
            }
        }
    }
}

impl HelperOutput {
    fn put(self, output: OwnedFd, plan: &mut Plan) {
        let output = Arc::new(output);
        if self == Self::All {
            plan.stdio[1] = Some(Arc::clone(&output));
        }
        plan.stdio[2] = Some(output);
    }
}

impl From<Exit> for HelperEnd {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Code(code) => Self::Code(code),
            Exit::Signal(signal) => Self::Signal(signal),
        }
    }
}

/// `/dev/null`, for reading and writing.
pub(crate) fn null() -> io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open(
        "/dev/null",
        flags,
        rustix::fs::Mode::empty(),
    )?)
}

fn nowhere(null: &Arc<OwnedFd>) -> [Option<Arc<OwnedFd>>; 3] {
    std::array::from_fn(|_| Some(Arc::clone(null)))
}

/// fdguard's end and the helper's. Only fdguard's is nonblocking: they are two open files.
fn pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

fn is_full(error: &io::Error) -> bool {
    let full = [Errno::NFILE, Errno::MFILE];
    full.iter()
        .any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}
