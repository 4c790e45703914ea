//! Names of things: processes, descriptor numbers, files.

use serde::{Deserialize, Serialize};

/// A process number in the namespace that fdguard runs in.
pub type Pid = u32;

/// A descriptor number in an observed process. fdguard's own descriptors are `OwnedFd`.
pub type Fd = u32;

/// One program in a traced process: the injected library begins anew with each exec. A process
/// itself is a [`ProcKey`](fdguard_proc::ProcKey).
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
