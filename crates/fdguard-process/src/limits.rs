//! The limits of a tree and how they are enforced: by its cgroup, by the kernel's limit of each
//! process, or not at all.
//!
//! The memory of a process is limited by its data segment (`RLIMIT_DATA`), not by its address
//! space: programs that reserve addresses and never use them (Node, Java, Go) run under the first
//! and cannot start under the second. The kernel has no process limit for a tree: `RLIMIT_NPROC`
//! counts all processes of a user, in every session, and does not apply to root. Only
//! `RequestedLimits::new` allocates.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::cgroup::Leaf;
use crate::plan::TreeLimits;

/// How a limit is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitMechanism {
    /// By the cgroup of the tree: for all of its processes together.
    Cgroup,
    /// By the kernel, for each process separately.
    Rlimit,
    /// Not requested, or not enforced: the caller must watch.
    #[default]
    Nobody,
}

/// How each limit of a tree is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnforcedLimits {
    /// Bytes of memory.
    pub memory: LimitMechanism,
    /// CPU time.
    pub cpu: LimitMechanism,
    /// Processes at a time.
    pub processes: LimitMechanism,
    /// Descriptors of each process.
    pub descriptors: LimitMechanism,
}

impl LimitMechanism {
    fn number(self) -> u64 {
        match self {
            Self::Nobody => 0,
            Self::Rlimit => 1,
            Self::Cgroup => 2,
        }
    }

    fn from_number(number: u64) -> Self {
        match number & 3 {
            1 => Self::Rlimit,
            2 => Self::Cgroup,
            _ => Self::Nobody,
        }
    }
}

impl EnforcedLimits {
    /// For limits that the kernel enforces for each process.
    pub(crate) fn by_rlimits(limits: &TreeLimits) -> Self {
        let by = |is_wanted: bool| {
            if is_wanted {
                LimitMechanism::Rlimit
            } else {
                LimitMechanism::Nobody
            }
        };
        Self {
            memory: by(limits.memory.is_some()),
            cpu: by(limits.cpu.is_some()),
            processes: LimitMechanism::Nobody,
            descriptors: by(limits.descriptors.is_some()),
        }
    }

    pub(crate) fn word(self) -> u64 {
        let all = [self.memory, self.cpu, self.processes, self.descriptors];
        all.iter().fold(0, |word, by| word << 2 | by.number())
    }

    pub(crate) fn from_word(word: u64) -> Self {
        Self {
            memory: LimitMechanism::from_number(word >> 6),
            cpu: LimitMechanism::from_number(word >> 4),
            processes: LimitMechanism::from_number(word >> 2),
            descriptors: LimitMechanism::from_number(word),
        }
    }
}

/// Limits, with the texts that are written to a cgroup.
#[derive(Debug)]
pub(crate) struct RequestedLimits {
    limits: TreeLimits,
    memory: Option<String>,
    processes: Option<String>,
}

impl RequestedLimits {
    pub(crate) fn new(limits: TreeLimits) -> Self {
        Self {
            limits,
            memory: limits.memory.map(|bytes| bytes.to_string()),
            processes: limits.processes.map(|count| count.to_string()),
        }
    }

    /// Sets the limits that the leaf can enforce; the keeper does this before the program starts
    /// there.
    pub(crate) fn give(&self, leaf: Option<&Leaf<'_>>) -> EnforcedLimits {
        let mut enforced = EnforcedLimits::by_rlimits(&self.limits);
        let Some(leaf) = leaf else {
            return enforced;
        };
        if let Some(bytes) = &self.memory
            && leaf.set(c"memory.max", bytes.as_bytes())
        {
            enforced.memory = LimitMechanism::Cgroup;
            // Both may fail: without swap there is no such file, and without `oom.group` the kernel
            // kills one process instead of the tree.
            let _no_swap = leaf.set(c"memory.swap.max", b"0");
            let _alone = leaf.set(c"memory.oom.group", b"1");
        }
        if let Some(count) = &self.processes
            && leaf.set(c"pids.max", count.as_bytes())
        {
            enforced.processes = LimitMechanism::Cgroup;
        }
        enforced
    }

    /// Applies the remaining limits to a process and its future descendants: this one, before its
    /// exec, or a child that waits.
    pub(crate) fn put(&self, on: Option<Pid>, enforced: EnforcedLimits) -> Result<(), Errno> {
        put(&self.limits, on, enforced)
    }
}

fn put(limits: &TreeLimits, on: Option<Pid>, enforced: EnforcedLimits) -> Result<(), Errno> {
    if let (Some(bytes), LimitMechanism::Rlimit) = (limits.memory, enforced.memory) {
        cap(on, Resource::Data, bytes, bytes)?;
    }
    if let Some(time) = limits.cpu {
        let seconds = whole_seconds(time);
        // XCPU first, then KILL if it continues.
        cap(on, Resource::Cpu, seconds, seconds.saturating_add(1))?;
    }
    if let Some(count) = limits.descriptors {
        cap(on, Resource::Nofile, count, count)?;
    }
    Ok(())
}

/// Zero would not be a limit but end the process at once, on some kernels after a second.
fn whole_seconds(time: Duration) -> u64 {
    let more = u64::from(time.subsec_nanos() > 0);
    time.as_secs().saturating_add(more).max(1)
}

/// Never above fdguard's own limit.
fn cap(on: Option<Pid>, resource: Resource, soft: u64, hard: u64) -> Result<(), Errno> {
    let ours = getrlimit(resource).maximum;
    let at_most = |wanted: u64| Some(ours.map_or(wanted, |ours| ours.min(wanted)));
    let limit = Rlimit {
        current: at_most(soft),
        maximum: at_most(hard),
    };
    prlimit(on, resource, limit).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sees_to_what_arrives() {
        let enforced = EnforcedLimits {
            memory: LimitMechanism::Cgroup,
            cpu: LimitMechanism::Rlimit,
            processes: LimitMechanism::Nobody,
            descriptors: LimitMechanism::Cgroup,
        };
        assert_eq!(EnforcedLimits::from_word(enforced.word()), enforced);
        let none = EnforcedLimits::default();
        assert_eq!(EnforcedLimits::from_word(none.word()), none);
    }

    #[test]
    fn what_was_not_asked_for_is_seen_to_by_nobody() {
        let nothing = RequestedLimits::new(TreeLimits::default()).give(None);
        assert_eq!(nothing, EnforcedLimits::default());
        let limits = TreeLimits {
            memory: Some(1),
            processes: Some(1),
            ..TreeLimits::default()
        };
        let enforced = RequestedLimits::new(limits).give(None);
        assert_eq!(
            (enforced.memory, enforced.processes),
            (LimitMechanism::Rlimit, LimitMechanism::Nobody)
        );
    }

    #[test]
    fn a_part_of_a_second_is_a_second() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1001)), 2);
        assert_eq!(whole_seconds(Duration::from_secs(7)), 7);
    }
}
