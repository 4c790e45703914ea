//! A command as a probe: a tree of processes that ends with everything it started, at its deadline at the latest.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdguard_process::plan::{Group, Plan};
use fdguard_process::tree::{Exit, Stop, Told, Tree};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

use super::dial::Step;
use crate::turn::{Ready, Wants};

/// How much of what a command says is kept for the reason.
const KEPT: usize = 1 << 10;
const KILL: i32 = 9;

/// Where commands run.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// Their whole environment: the service's.
    pub environment: Vec<(OsString, OsString)>,
    /// Their folder; ours when absent.
    pub folder: Option<PathBuf>,
}

/// A command that runs.
#[derive(Debug)]
pub(super) struct Running {
    tree: Tree,
    output: Option<OwnedFd>,
    said: Vec<u8>,
    exit: Option<Exit>,
}

impl Running {
    pub(super) fn start(command: &str, scene: &Scene) -> Result<Self, String> {
        let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let (output, theirs) = pipe
            .map_err(io::Error::from)
            .map_err(|why| why.to_string())?;
        let null = null
            .map_err(io::Error::from)
            .map_err(|why| format!("/dev/null: {why}"))?;
        // Ours alone: a flag of the file belongs to both ends of it apart.
        rustix::io::ioctl_fionbio(&output, true).map_err(|why| why.to_string())?;
        let theirs = Arc::new(theirs);
        let tree = Tree::start(&Plan {
            command: ["/bin/sh", "-c", command].map(OsString::from).to_vec(),
            environment: scene.environment.clone(),
            folder: scene.folder.clone(),
            stdio: [
                Some(Arc::new(null)),
                Some(Arc::clone(&theirs)),
                Some(theirs),
            ],
            handed: Vec::new(),
            soft_limit: None,
            group: Group::Session,
            cgroup: false,
        });
        Ok(Self {
            tree: tree.map_err(|why| why.to_string())?,
            output: Some(output),
            said: Vec::new(),
            exit: None,
        })
    }

    pub(super) fn wants<'f>(&'f self, wants: &mut Wants<'f>) {
        wants.read(self.tree.fd());
        if let Some(output) = &self.output {
            wants.read(output.as_fd());
        }
    }

    /// Done when nothing of it is left.
    pub(super) fn turn(&mut self, ready: &Ready) -> Step<()> {
        if self.output.as_ref().is_some_and(|output| ready.has(output)) {
            self.listen();
        }
        while let Some(told) = self.tree.told() {
            match told {
                Told::MainEnded { exit, .. } => {
                    self.exit = Some(exit);
                    self.end();
                }
                Told::Empty { exit, .. } => {
                    self.listen();
                    return self.answer(exit);
                }
                _ => return Step::Failed("the command's keeper was killed".to_owned()),
            }
        }
        Step::Waiting
    }

    /// Ends it with all that it started; it is over when it is empty.
    pub(super) fn end(&mut self) {
        self.tree.stop(Stop {
            signal: KILL,
            grace: Duration::ZERO,
        });
    }

    /// Reads what was said, so that the command cannot stand still at a full pipe. The first words are kept.
    fn listen(&mut self) {
        let Some(output) = &self.output else { return };
        let mut buffer = [0; 4 << 10];
        // Bounded: one that never stops talking is read again at the next turn.
        for _ in 0..16 {
            match rustix::io::read(output, &mut buffer) {
                Ok(0) => {
                    self.output = None;
                    return;
                }
                Ok(count) => {
                    let room = KEPT - self.said.len();
                    self.said.extend_from_slice(&buffer[..count.min(room)]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn answer(&self, exit: Exit) -> Step<()> {
        let ended = match self.exit.unwrap_or(exit) {
            Exit::Code(0) => return Step::Done(()),
            Exit::Code(code) => format!("ended with {code}"),
            Exit::Signal(signal) => format!("ended by signal {signal}"),
        };
        Step::Failed(match self.said() {
            Some(said) => format!("{ended}: {said}"),
            None => ended,
        })
    }

    /// The last line of what it said, made safe to print.
    pub(super) fn said(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.said);
        let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
        let safe = last
            .trim()
            .chars()
            .map(|c| if c.is_control() { '?' } else { c });
        Some(safe.take(200).collect())
    }
}
