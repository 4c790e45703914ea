//! Where the records of a trace come from. A [`TraceSession`](crate::TraceSession) reads them only
//! through [`TraceSource`], and nothing above the session knows which source it is.
//!
//! Dropping a source ends the recording. A process that stays alive goes on as it would without
//! fdguard.

use std::fmt::Debug;
use std::io;
use std::time::SystemTime;

use fdguard_core::event::CollectedEvents;
use fdguard_core::{Gap, TraceKey};

use crate::observed_trace::{UntracedProgram, is_alive};
use crate::ring::DrainedEvents;
use crate::table::ProcessTable;
use crate::{BlindReason, Error};

/// A way to record what the processes of a program open and close.
pub trait TraceSource: Debug + Send + Sync {
    /// Its name in the report's `coverage.backend`.
    fn backend(&self) -> &'static str;

    /// Which events it delivers: hazards that need others are reported as gaps.
    fn collects(&self) -> CollectedEvents {
        CollectedEvents::ALL
    }

    /// Why it does not see into the program.
    fn blind(&self) -> Option<BlindReason>;

    /// Every process with records that were not removed yet.
    fn processes(&self) -> Result<Vec<TraceKey>, Error>;

    /// The events of a process, from the oldest that still exists.
    fn events(&self, key: TraceKey) -> io::Result<Box<dyn EventReader>>;

    /// What a process holds now, or held at its end; `None` while its table is incomplete.
    fn table(&self, key: TraceKey) -> io::Result<Option<ProcessTable>>;

    /// Whether the program of this key still runs; if not, all it did was recorded.
    fn is_running(&self, key: TraceKey) -> bool {
        is_alive(key.pid)
    }

    /// The most processes whose events can be read at the same time.
    fn most_processes(&self) -> usize {
        // Each costs fdguard a descriptor.
        256
    }

    /// Whether the process runs another program by now, which does not record.
    fn is_outlived(&self, key: TraceKey) -> bool;

    /// Why such a program does not record, if nothing in the program itself prevents it.
    fn unloaded(&self) -> BlindReason {
        BlindReason::NotLoaded
    }

    /// Whether a process that does not record may still begin to: nothing can be said of it yet.
    fn is_starting(&self, _pid: u32) -> bool {
        false
    }

    /// A process that does not record, and why; `None` if it does from now on.
    fn untraced(&self, pid: u32) -> Option<UntracedProgram> {
        Some(UntracedProgram::from_pid(pid).or_because(self.unloaded()))
    }

    /// Whether it traces a process although that has no library.
    fn follows(&self, _pid: u32) -> bool {
        false
    }

    /// Whether its processes ran before the trace: then even one that has done nothing since holds
    /// something that is of interest.
    fn is_late(&self) -> bool {
        false
    }

    /// When fdguard ended the recordings, by the monotonic clock: one that ended before is a gap.
    fn left_at(&self) -> Option<u64> {
        None
    }

    /// What the source itself could not see.
    fn gaps(&self) -> Vec<Gap> {
        Vec::new()
    }

    /// Processes that wait until their heap was walked, and since when.
    fn waiting(&self) -> Vec<(TraceKey, SystemTime)> {
        Vec::new()
    }

    /// Lets such a process go on.
    fn release(&self, _key: TraceKey) {}

    /// No heap will be walked any more: no process waits from now on.
    fn release_all(&self) {}

    /// Removes the records of a process, which take memory.
    fn remove(&self, key: TraceKey);
}

/// Reads the events of one process in order.
pub trait EventReader: Debug + Send {
    /// Reads what is new. At the end no event is awaited any more.
    fn drain(&mut self, now: u64, is_end: bool) -> io::Result<DrainedEvents>;
}
