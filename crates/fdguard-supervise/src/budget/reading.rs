//! The measurements of one look at a service.

use std::time::Duration;

use fdguard_core::snapshot::Limits;
use fdguard_core::{Class, Gap, Pid};

/// Something that was looked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation<T> {
    /// It is this.
    Seen(T),
    /// Not measured, or not known yet.
    NotYet,
    /// It cannot be seen.
    Hidden(Gap),
}

impl<T> Observation<T> {
    /// What was seen.
    pub fn seen(&self) -> Option<&T> {
        match self {
            Self::Seen(value) => Some(value),
            Self::NotYet | Self::Hidden(_) => None,
        }
    }
}

/// A look at all processes of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceReading {
    /// When, since the watching began.
    pub at: Duration,
    /// The program itself, which may have ended before the others.
    pub main: Pid,
    /// Each process, the program itself first.
    pub processes: Vec<ProcessReading>,
    /// Processes beside the program itself.
    pub children: u64,
    /// Processes that have exited and were not reaped.
    pub zombies: Observation<u64>,
    /// Memory of all together.
    pub memory: Observation<MemoryUse>,
    /// How many more there are every minute of what leaks, in the program itself: 0 where it was
    /// judged and nothing leaks.
    pub growth: Observation<f64>,
    /// The limit that the program reaches first; `None` if it approaches none.
    pub wall: Observation<Option<LimitAhead>>,
}

impl ServiceReading {
    /// What was seen of the program itself; absent when it has ended.
    #[must_use]
    pub fn of_main(&self) -> Option<&ProcessReading> {
        self.processes
            .first()
            .filter(|first| first.pid == self.main)
    }
}

/// What was seen of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessReading {
    /// Which.
    pub pid: Pid,
    /// When it started, in ticks since boot: with the number it is the identity.
    pub start_ticks: Option<u64>,
    /// How many descriptors it has.
    pub count: Observation<u64>,
    /// How many it may have.
    pub limits: Limits,
    /// The highest number in use.
    pub highest: HighestFd,
    /// Whether it can call `select()`; absent if unknown.
    pub selects: Option<bool>,
    /// How many there are of each class.
    pub classes: Observation<Vec<(Class, u64)>>,
}

/// What is known of the highest number in use.
#[derive(Clone, Debug, PartialEq)]
pub enum HighestFd {
    /// This one.
    Is(u64),
    /// At most this one; the exact number is not needed.
    AtMost(u64),
    /// Not needed.
    NotAsked,
    /// It cannot be seen.
    Hidden(Gap),
}

/// Memory of several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes.
    pub bytes: u64,
    /// Whether pages that processes share are counted once: else this is the most it can be.
    pub exact: bool,
}

/// A limit that a process approaches.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitAhead {
    /// Its name, as in a diagnosis.
    pub name: String,
    /// Until then, at the rate of now.
    pub left: Duration,
}
