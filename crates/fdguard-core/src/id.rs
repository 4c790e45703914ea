//! Names of things: processes, descriptor numbers, files.

use fdguard_proc::ProcKey;
use serde::{Deserialize, Serialize};

/// A process number in the namespace that fdguard runs in.
pub type Pid = u32;

/// A descriptor number in an observed process. fdguard's own descriptors are `OwnedFd`.
pub type Fd = u32;

/// A process by what is known of it: some rows have no start time, and are then compared by their
/// number alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowKey {
    /// The process number.
    pub pid: Pid,
    /// Its start, in clock ticks after boot.
    pub start_ticks: Option<u64>,
}

impl RowKey {
    /// The identity, when the start time is known.
    #[must_use]
    pub fn key(self) -> Option<ProcKey> {
        let pid = self.pid;
        let of = |start_ticks| ProcKey { pid, start_ticks };
        self.start_ticks.map(of)
    }
}

/// One program in a traced process: the injected library begins anew with each exec. A process
/// itself is a [`ProcKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TraceKey {
    /// The process number.
    pub pid: Pid,
    /// When the library began, in nanoseconds of the monotonic clock.
    pub began: u64,
}

/// What a descriptor refers to, as reported by the kernel: the mount it was opened through and the
/// inode. Anonymous inodes share one inode number, so equality there proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileId {
    /// Mount id, unique on the host while the mount lives.
    pub mnt: u64,
    /// Inode number.
    pub ino: u64,
}
