//! The owner's end of a process tree.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::plan::Plan;

/// Why a program could not be started. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No such program.
    #[error("{program}: command not found")]
    NotFound {
        /// Which.
        program: String,
    },
    /// It is there and cannot be run.
    #[error("{program}: cannot be run: {source}")]
    NotRunnable {
        /// Which.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The machine refused something else.
    #[error("{step}: {source}")]
    Refused {
        /// What was tried.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this status.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

/// What the keeper tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// The program itself ended; some of its descendants may live on.
    MainEnded {
        /// How.
        exit: Exit,
        /// Descendants that live on at this moment.
        left: u32,
    },
    /// Nothing is left: `waitpid` said so, or the cgroup is empty.
    Empty {
        /// How the program itself ended.
        exit: Exit,
        /// Processes that did not end when they were asked to.
        killed: u32,
        /// Processes that were reaped besides the program itself.
        reaped: u32,
    },
    /// The keeper is gone without a word (somebody killed it); what is known of the tree was killed, but it may not be all.
    Lost,
}

/// How a tree is asked to end: this signal (and CONT) to the program, a little later to all, then KILL until nothing is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The first signal; TERM as a rule.
    pub signal: i32,
    /// From the first signal to the first KILL.
    pub grace: Duration,
}

/// A tree of processes with its keeper. Dropped, it is killed, and the drop waits for its end.
#[derive(Debug)]
pub struct Tree {}

impl Tree {
    /// Starts the program and waits until it runs or cannot (a few hundred microseconds).
    pub fn start(_plan: &Plan) -> Result<Self, StartError> {
        Err(StartError::Refused {
            step: "start",
            source: io::ErrorKind::Unsupported.into(),
        })
    }

    /// The program's own process.
    #[must_use]
    pub fn main(&self) -> u32 {
        0
    }

    /// Its processes that live at this moment, the program first.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Readable when something was told.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        rustix::stdio::stdin()
    }

    /// What was told since; never waits.
    pub fn told(&mut self) -> Option<Told> {
        None
    }

    /// Asks it to end. Another call with a shorter grace hurries it.
    pub fn stop(&mut self, _how: Stop) {}

    /// Sends a signal to the program alone, if it lives.
    pub fn signal(&mut self, _signal: i32) {}
}
