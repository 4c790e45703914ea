//! Types that an owner uses to control and observe a tree.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::keeper::message::Step;
use crate::reserve::Reserve;

/// Why a program could not be started. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no such program.
    #[error("{program}: command not found")]
    NotFound {
        /// The program.
        program: String,
    },
    /// It exists but cannot be run.
    #[error("cannot run {program}: {source}")]
    NotRunnable {
        /// The program.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// Another step failed.
    #[error("{step}: {source}")]
    Refused {
        /// The step.
        step: &'static str,
        /// The reason.
        source: io::Error,
    },
}

impl StartError {
    /// The exit code that shells use for it: 127 if it is not found, 126 if it cannot be run.
    #[must_use]
    pub fn code(&self) -> Option<u8> {
        match self {
            Self::NotFound { .. } => Some(127),
            Self::NotRunnable { .. } => Some(126),
            Self::Refused { .. } => None,
        }
    }

    pub(super) fn refused(step: Step) -> impl Fn(Errno) -> Self {
        move |errno| Self::Refused {
            step: step.text(),
            source: errno.into(),
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this status.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

/// Events from the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeEvent {
    /// The program itself ended; some of its descendants may still be alive.
    MainEnded {
        /// How.
        exit: Exit,
        /// Descendants that are still alive.
        left: u32,
    },
    /// Nothing is left: `waitpid` found no child, or the cgroup is empty.
    Empty {
        /// How the program itself ended.
        exit: Exit,
        /// Processes that did not end on request.
        killed: u32,
        /// Processes that were reaped besides the program itself.
        reaped: u32,
    },
    /// The keeper is gone without a report (it was killed). The known processes of the tree were
    /// killed, but there may be others.
    Lost,
}

/// What the owner of a tree waits for.
#[derive(Clone, Copy, Debug)]
pub struct TreeInterest<'t> {
    /// Until one of these is readable.
    pub fds: [Option<BorrowedFd<'t>>; 2],
    /// Until this moment at the latest.
    pub until: Option<Instant>,
}

/// How a tree is ended: this signal (and CONT) to the program, a little later to all, then KILL
/// until nothing is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopPlan {
    /// The first signal; usually TERM.
    pub signal: i32,
    /// From the first signal to the first KILL.
    pub grace: Duration,
}

/// The resources that a process used, including children that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time in its own code.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// The largest resident memory of one process, in bytes.
    pub peak_memory: u64,
    /// How many processes of its tree the kernel killed because the memory of its cgroup was used
    /// up; `None` if no cgroup counts it.
    pub memory_kills: Option<u32>,
}

/// What holds a tree together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// The keeper, which is the parent of every orphan.
    Keeper,
    /// The keeper, and a cgroup of its own.
    KeeperAndCgroup,
}

/// Options of a start besides the plan.
#[derive(Debug)]
pub struct Options<'r> {
    /// From the owner's end (it was killed, or crashed) to the first KILL; the tree gets TERM at
    /// once.
    pub orphan_grace: Duration,
    /// Descriptors that are released for the start, so that it works even if the table is full.
    pub reserve: Option<&'r mut Reserve>,
    /// Also hold a pidfd of the program. Without it a tree costs its owner one descriptor, and
    /// signals go through the keeper.
    pub keep_pidfd: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            orphan_grace: Duration::from_secs(2),
            reserve: None,
            keep_pidfd: true,
        }
    }
}
