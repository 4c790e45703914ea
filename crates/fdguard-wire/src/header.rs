//! The first page: the process that owns the mapping, and what was lost.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::event::PreventedHarm;
use crate::loader::Omission;

/// The first word of a mapping, written last: `fdguard1`.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"fdguard1");
/// The version of the layout; readers accept no other.
pub const VERSION: u32 = 8;

/// The header. Counters only rise.
#[derive(Debug)]
#[repr(C)]
pub struct TableHeader {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The pid, as the process sees it.
    pub pid: AtomicU32,
    /// Bytes of the mapping.
    pub size: AtomicU64,
    /// When the mapping was created, by the monotonic clock, in nanoseconds.
    pub began: AtomicU64,
    /// The same by the wall clock.
    pub began_wall: AtomicU64,
    /// The process that this one was forked from, 0 if it started with exec.
    pub parent: AtomicU64,
    /// When the mapping of `parent` was created.
    pub parent_began: AtomicU64,
    /// One past the highest number that was ever open.
    pub numbers: AtomicU64,
    /// Words in use.
    pub words: AtomicU64,
    /// Modules in use.
    pub modules: AtomicU64,
    /// Tickets of the ring that were taken.
    pub events: AtomicU64,
    /// The time of the latest open or close, by the monotonic clock.
    pub latest: AtomicU64,
    /// Stacks in use.
    pub stacks: AtomicU64,
    /// Opens and closes that were not recorded: numbers too high, no memory.
    pub lost_events: AtomicU64,
    /// Opens whose stack did not fit: counted under stack 0.
    pub lost_stacks: AtomicU64,
    /// Descriptors whose close was not seen: closed inside libc or by a raw system call.
    pub unseen_closes: AtomicU64,
    /// Calls by a child that shares the parent's memory (vfork) or whose fork was not seen: not
    /// recorded.
    pub foreign_calls: AtomicU64,
    /// Stacks that stopped before the outermost frame.
    pub cut_stacks: AtomicU64,
    /// The name of the process, as in the kernel, padded with zeros.
    pub comm: [AtomicU64; 2],
    /// 1 if the process is protected.
    pub protected: AtomicU64,
    /// How many numbers protection keeps now: the process has this many descriptors more than it
    /// knows of.
    pub quarantined: AtomicU64,
    /// What protection prevented, by [`PreventedHarm`].
    pub prevented: [AtomicU64; PreventedHarm::KINDS],
    /// Programs that were started without the library, by [`Omission`].
    pub omissions: [AtomicU64; Omission::KINDS],
    /// 1 if the library came into a running program: what is inherited was opened before that.
    pub attached: AtomicU64,
    /// When the recording ended although the process goes on, by the monotonic clock; 0 before.
    pub ended: AtomicU64,
    /// References to an interposed function that lead to unknown code and were left as they are.
    pub unhooked: AtomicU64,
    /// Threads that left the process's descriptor table for one of their own: what they open and
    /// close from then on is not recorded.
    pub apart: AtomicU64,
}

impl TableHeader {
    /// All zeros.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            magic: AtomicU64::new(0),
            version: AtomicU32::new(0),
            pid: AtomicU32::new(0),
            size: AtomicU64::new(0),
            began: AtomicU64::new(0),
            began_wall: AtomicU64::new(0),
            parent: AtomicU64::new(0),
            parent_began: AtomicU64::new(0),
            numbers: AtomicU64::new(0),
            words: AtomicU64::new(0),
            modules: AtomicU64::new(0),
            events: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            stacks: AtomicU64::new(0),
            lost_events: AtomicU64::new(0),
            lost_stacks: AtomicU64::new(0),
            unseen_closes: AtomicU64::new(0),
            foreign_calls: AtomicU64::new(0),
            cut_stacks: AtomicU64::new(0),
            comm: [const { AtomicU64::new(0) }; 2],
            protected: AtomicU64::new(0),
            quarantined: AtomicU64::new(0),
            prevented: [const { AtomicU64::new(0) }; PreventedHarm::KINDS],
            omissions: [const { AtomicU64::new(0) }; Omission::KINDS],
            attached: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            unhooked: AtomicU64::new(0),
            apart: AtomicU64::new(0),
        }
    }
}

impl Default for TableHeader {
    fn default() -> Self {
        Self::new()
    }
}
