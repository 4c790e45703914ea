//! What has become of a process in which something failed.

use fdguard_proc::ProcKey;
use fdguard_proc::stat::ProcStat;

use crate::x86_64::memory::Memory;

/// Whether a process is still the one that was examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Runs,
    /// It has ended, or has begun to: its memory is gone before it is a zombie.
    Ended,
    /// It has executed another program.
    Executed,
}

/// Looks at the process again. The memory is that of the program that was examined.
pub(crate) fn fate(key: ProcKey, memory: &Memory) -> Fate {
    // This order: memory that is gone stays gone.
    let has_memory = memory.exists();
    let stat = std::fs::read(format!("/proc/{}/stat", key.pid)).unwrap_or_default();
    match ProcStat::parse(&stat) {
        Some(stat) if stat.key(key.pid) == key && !stat.has_ended() => {
            if has_memory {
                Fate::Runs
            } else if stat.is_ending() {
                Fate::Ended
            } else {
                Fate::Executed
            }
        }
        _ => Fate::Ended,
    }
}
