//! The keeper as its owner sees it: a process that may be stopped, traced, or killed by the
//! processes it keeps.

use fdguard_proc::ProcKey;
use fdguard_proc::process::stat;
use rustix::process::Signal;

use crate::sys;

/// The keeper of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeeperProcess {
    pub(crate) pid: u32,
    /// Its start time, if it is not a child of this process: then its pid may be reused once it has
    /// ended.
    pub(crate) started: Option<u64>,
}

impl KeeperProcess {
    /// Whether its pid is still valid. An unreaped child keeps its pid.
    pub(crate) fn is_there(self) -> bool {
        self.key().is_none_or(|keeper| keeper.is_alive())
    }

    /// Whether it is currently stopped by a signal or a tracer.
    pub(crate) fn is_held(self) -> bool {
        stat(self.pid, |stat| stat.is_stopped()).unwrap_or(false) && self.is_there()
    }

    /// Sends it a signal, unless it is gone.
    pub(crate) fn signal(self, signal: i32) {
        let _gone = match (self.key(), Signal::from_named_raw(signal)) {
            (Some(keeper), Some(signal)) => keeper.signal(signal).is_ok(),
            // A child of this process, which only this process reaps.
            (None, _) => sys::signal_child(self.pid, signal).is_ok(),
            (Some(_), None) => false,
        };
    }

    fn key(self) -> Option<ProcKey> {
        let pid = self.pid;
        self.started.map(|start_ticks| ProcKey { pid, start_ticks })
    }
}
