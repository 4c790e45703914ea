//! One run of a service: from the start of its program until no process of it is left.

use std::time::{Duration, Instant};

use fdguard_process::tree::{Exit, Tree};

use crate::health::Listener;

/// After the program exited with 0, a descendant has this long to start listening.
pub(super) const SETTLE: Duration = Duration::from_secs(3);
/// The interval between checks meanwhile.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// A run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) tree: Tree,
    pub(super) started: Instant,
    /// The program's own process; another one after `MAINPID=`.
    pub(super) main: u32,
    /// It sent `READY=1`.
    pub(super) notified: bool,
    pub(super) ready: bool,
    /// When it must be ready.
    pub(super) ready_until: Option<Instant>,
    /// Its watchdog interval, and the current deadline.
    pub(super) watchdog: Option<(Duration, Instant)>,
    /// Why it is being ended.
    pub(super) ending: Option<Ending>,
    /// The program exited with 0 and left processes; they are examined until then.
    pub(super) settle: Option<Settle>,
    /// A process that it left is now the service.
    pub(super) is_adopted: bool,
    /// The last status that it reported.
    pub(super) status: Option<String>,
    /// Where it listens, for the accept check, and when that was looked up.
    pub(super) listeners: (Vec<Listener>, Option<Instant>),
}

/// The time after the program exited and left processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settle {
    pub(super) until: Instant,
    pub(super) next: Instant,
}

/// Why a run is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The program exited by itself; only what it left is being stopped.
    Left,
    /// It does not work.
    Sick(&'static str),
    /// It will be restarted.
    Renew(&'static str),
    /// It stays down, with this as fdguard's exit status.
    Down(u8),
    /// A stop was requested.
    Stop,
}

impl Run {
    pub(super) fn new(tree: Tree, now: Instant) -> Self {
        Self {
            main: tree.main(),
            tree,
            started: now,
            notified: false,
            ready: false,
            ready_until: None,
            watchdog: None,
            ending: None,
            settle: None,
            is_adopted: false,
            status: None,
            listeners: (Vec::new(), None),
        }
    }
}

/// The status that a shell would report.
pub(super) fn status(exit: Exit) -> u8 {
    match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => 128_u8.saturating_add(u8::try_from(signal).unwrap_or(127)),
    }
}
