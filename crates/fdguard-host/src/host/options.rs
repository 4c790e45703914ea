//! Options of a host.

use std::path::PathBuf;
use std::time::Duration;

use super::Events;

/// Options of a host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Sessions at a time.
    pub max_sessions: usize,
    /// A session that was idle for this long is closed.
    pub idle_after: Duration,
    /// How often to search for idle sessions.
    pub reap_every: Duration,
    /// The directory of the registry and the logs; `None` for no registry.
    pub state: Option<PathBuf>,
    /// Use warm interpreters for Python, if there is a program for their keepers.
    pub warm_python: bool,
    /// The `fdguard` command, which sessions from a warm interpreter are kept by
    /// (`fdguard __keeper`); absent: Python starts cold.
    pub keeper_program: Option<PathBuf>,
    /// How often sessions with limits that the kernel does not enforce are checked.
    pub watch_every: Duration,
    /// A close that takes longer is reported as unfinished and continues. The session itself kills
    /// after 200 ms, and waits five seconds for a process that the kernel does not end.
    pub close_within: Duration,
    /// The soft descriptor limit is raised to this at the start, up to the hard limit; `None`
    /// leaves it unchanged.
    pub raise_limit: Option<u64>,
    /// The event subscriber.
    pub events: Events,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_sessions: 32,
            idle_after: Duration::from_secs(900),
            reap_every: Duration::from_secs(60),
            state: None,
            warm_python: true,
            keeper_program: None,
            watch_every: Duration::from_secs(1),
            close_within: Duration::from_secs(8),
            raise_limit: Some(fdguard_process::own_limit::ENOUGH),
            events: Events::default(),
        }
    }
}
