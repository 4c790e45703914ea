//! The programs that report opens and closes, while they are loaded.

use std::io;

use crate::{KernelEvent, LoadRefusal};

/// Which processes are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracerScope {
    /// Those that [`KernelTracer::follow`] names, and all they start.
    Followed,
    /// Every process of the host except fdguard.
    Host,
}

/// How much could not be reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostCounts {
    /// Events for which the buffer had no room.
    pub events: u64,
    /// Stacks for which there was no room.
    pub stacks: u64,
}

/// The loaded programs. Dropping it removes them.
#[derive(Debug)]
pub struct KernelTracer {}

impl KernelTracer {
    /// Loads the programs and starts to report.
    pub fn load(_scope: TracerScope) -> Result<Self, LoadRefusal> {
        Err(LoadRefusal::Lacks(
            "the programs, which are not written yet",
        ))
    }

    /// Reports this process, and all it starts, from now on.
    pub fn follow(&self, _pid: u32) -> io::Result<()> {
        Ok(())
    }

    /// Reports it no longer.
    pub fn unfollow(&self, _pid: u32) -> io::Result<()> {
        Ok(())
    }

    /// Passes on what has happened since the last time; never waits.
    pub fn drain(&mut self, _take: &mut dyn FnMut(KernelEvent)) -> io::Result<()> {
        Ok(())
    }

    /// What was lost so far.
    #[must_use]
    pub fn lost(&self) -> LostCounts {
        LostCounts::default()
    }
}
