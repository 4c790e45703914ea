//! The measurements of one look at a service.

use std::time::Duration;

use fdguard_core::snapshot::Limits;
use fdguard_core::{Class, Gap, Pid};

/// A measurement or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation<T> {
    /// The value.
    Seen(T),
    /// Not measured, or not known yet.
    NotYet,
    /// It cannot be observed.
    Hidden(Gap),
}

impl<T> Observation<T> {
    /// The value, if there is one.
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
    /// When, since the watch began.
    pub at: Duration,
    /// The program itself, which may have exited before the others.
    pub main: Pid,
    /// Each process, the program itself first.
    pub processes: Vec<ProcessReading>,
    /// Processes other than the program itself.
    pub children: u64,
    /// Processes that have exited and were not reaped.
    pub zombies: Observation<u64>,
    /// Memory of all together.
    pub memory: Observation<MemoryUse>,
    /// The rate per minute of leaking descriptors in the program itself: 0 if it was judged and
    /// nothing leaks.
    pub growth: Observation<f64>,
    /// The limit that the program reaches first; `None` if it approaches none.
    pub wall: Observation<Option<LimitAhead>>,
}

impl ServiceReading {
    /// The measurements of the program itself; absent if it has exited.
    #[must_use]
    pub fn of_main(&self) -> Option<&ProcessReading> {
        self.processes
            .first()
            .filter(|first| first.pid == self.main)
    }
}

/// The measurements of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessReading {
    /// Which.
    pub pid: Pid,
    /// When it started, in ticks since boot: with the pid, its identity.
    pub start_ticks: Option<u64>,
    /// How many descriptors it has.
    pub count: Observation<u64>,
    /// Its limits.
    pub limits: Limits,
    /// The highest number in use.
    pub highest: HighestFd,
    /// Whether it can call `select()`; absent if unknown.
    pub selects: Option<bool>,
    /// How many there are of each class.
    pub classes: Observation<Vec<(Class, u64)>>,
}

/// The highest number in use, as far as known.
#[derive(Clone, Debug, PartialEq)]
pub enum HighestFd {
    /// Exactly this one.
    Is(u64),
    /// At most this one; the exact number is not needed.
    AtMost(u64),
    /// Not needed.
    NotAsked,
    /// It cannot be observed.
    Hidden(Gap),
}

/// Memory of several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes.
    pub bytes: u64,
    /// Whether pages that processes share are counted once: otherwise this is an upper bound.
    pub exact: bool,
}

/// A limit that a process approaches.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitAhead {
    /// Its name, as in a diagnosis.
    pub name: String,
    /// Time until then, at the current rate.
    pub left: Duration,
}
