//! The ways to read processes.

use fdguard_core::{Pid, Snapshot};

use crate::lsof::Lsof;
use crate::{Error, Options, Probe};

/// Reads processes into snapshots. What a reader cannot see is a gap in them.
///
/// [`Probe`] reads `/proc`, and the tables of many processes with BPF ([`crate::Depth`]); [`Lsof`]
/// runs the program of that name. A reader for another system is one more implementation.
pub trait ProcessReader {
    /// The descriptors of several processes, in the requested order. Each has its own outcome.
    fn snapshots(&self, pids: &[Pid], options: Options) -> Vec<Result<Snapshot, Error>>;

    /// The descriptors of one process.
    fn snapshot(&self, pid: Pid, options: Options) -> Result<Snapshot, Error> {
        let only = self.snapshots(&[pid], options).pop();
        only.unwrap_or(Err(Error::NoSuchProcess(pid)))
    }
}

impl ProcessReader for Probe {
    fn snapshots(&self, pids: &[Pid], options: Options) -> Vec<Result<Snapshot, Error>> {
        self.snapshots(pids, options)
    }
}

impl ProcessReader for Lsof {
    fn snapshots(&self, pids: &[Pid], _: Options) -> Vec<Result<Snapshot, Error>> {
        self.snapshots(pids)
    }
}
