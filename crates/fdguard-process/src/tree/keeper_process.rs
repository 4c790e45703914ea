//! The keeper as its owner sees it: a process that may be stopped, traced, or killed by the
//! processes it keeps.

use crate::identity::{ProcessId, signal_checked};
use crate::members;
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
        self.started.is_none_or(|started| {
            ProcessId::known(self.pid, started).is_some_and(|keeper| keeper.matches())
        })
    }

    /// Whether it is currently stopped by a signal or a tracer.
    pub(crate) fn is_held(self) -> bool {
        members::stat(self.pid).is_some_and(|stat| stat.is_held()) && self.is_there()
    }

    /// Sends it a signal, unless it is gone.
    pub(crate) fn signal(self, signal: i32) {
        let _gone = match self.started {
            // A child of this process, which only this process reaps.
            None => sys::signal_child(self.pid, signal).is_ok(),
            Some(started) => ProcessId::known(self.pid, started)
                .is_some_and(|keeper| signal_checked(&keeper, signal).is_ok()),
        };
    }
}
