//! The observations of one process at one moment.

use fdguard_proc::ProcKey;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::workload::Workload;
use crate::{FdEntry, Gap, Pid, RowKey, Text};

/// How much could be observed. Always named in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// No privilege: count, limits, table size; not the descriptors themselves.
    Radar,
    /// Every descriptor: same user, root, or `CAP_SYS_PTRACE` with `CAP_DAC_READ_SEARCH`.
    Full,
    /// Every descriptor with its true identity, by a BPF iterator.
    Kernel,
}

/// Where a snapshot came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// The proc file system.
    Proc,
    /// The `lsof` program.
    Lsof,
}

/// Everything observed of one process at one moment; no conclusions.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// When.
    pub taken_at: Timestamp,
    /// How much could be observed.
    pub tier: Tier,
    /// The reader.
    pub via: Via,
    /// The process.
    pub process: Process,
    /// Its limits on descriptors.
    pub limits: Limits,
    /// Number of open descriptors.
    pub count: Option<u64>,
    /// Size of its descriptor table: a high-water mark, it never shrinks.
    pub table_size: Option<u64>,
    /// Host limits that cause the same errors.
    pub host: Ceilings,
    /// The descriptors in ascending order; absent in the radar tier.
    pub fds: Option<Vec<FdEntry>>,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

/// A process and its relatives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Pid in fdguard's namespace.
    pub pid: Pid,
    /// Start time.
    pub start_time: Option<Timestamp>,
    /// Start time as the kernel counts it: with the pid, the identity.
    #[serde(default)]
    pub start_ticks: Option<u64>,
    /// Command name.
    pub comm: Text,
    /// Executable; absent where it could not be read.
    pub exe: Option<Text>,
    /// Arguments.
    pub cmdline: Vec<Text>,
    /// Real user.
    pub uid: Option<u32>,
    /// Parent.
    #[serde(default)]
    pub ppid: Option<Pid>,
    /// Process group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pgid: Option<Pid>,
    /// Number of threads.
    pub threads: Option<u64>,
    /// Number of children.
    pub children: Option<u64>,
    /// Number of children that ended and were not waited for.
    pub zombies: Option<u64>,
    /// Container id from the cgroup; absent outside containers.
    pub container: Option<String>,
    /// Its systemd unit, container and pod by name; absent where the cgroup shows none.
    #[serde(default)]
    pub workload: Option<Workload>,
    /// Pid inside the innermost pid namespace, where that differs.
    #[serde(default)]
    pub ns_pid: Option<Pid>,
    /// Its children grouped by command, largest group first.
    #[serde(default)]
    pub cohorts: Vec<Cohort>,
}

impl Process {
    /// The identity, when the start time is known.
    #[must_use]
    pub fn key(&self) -> Option<ProcKey> {
        self.row_key().key()
    }

    /// The identity, as far as it is known.
    #[must_use]
    pub fn row_key(&self) -> RowKey {
        RowKey {
            pid: self.pid,
            start_ticks: self.start_ticks,
        }
    }
}

/// Children that run the same command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cohort {
    /// Command name.
    pub command: Text,
    /// How many.
    pub count: u64,
    /// How many of them are zombies.
    pub zombies: u64,
}

/// Limits on open descriptors; absent is "not known" or, for the hard one, "unlimited".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The limit at which `open` fails.
    pub soft: Option<u64>,
    /// What the process may raise the soft limit to.
    pub hard: Option<u64>,
}

/// A limit of the host or the user: how much is used, and its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ceiling {
    /// In use now; absent if that would require more access than allowed.
    pub used: Option<u64>,
    /// The limit.
    pub at: Option<u64>,
}

/// The other limits behind the same errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Open files on the whole host (`ENFILE`).
    pub files: Ceiling,
    /// Highest value that a hard limit may take (`fs.nr_open`).
    pub nr_open: Option<u64>,
    /// Pseudo-terminals.
    pub ptys: Ceiling,
    /// inotify instances of the process's user (`EMFILE` although the descriptor limit is far
    /// away).
    pub inotify_instances: Ceiling,
    /// inotify watches of the process's user (`ENOSPC`).
    pub inotify_watches: Ceiling,
    /// Tasks on the host.
    pub tasks: Ceiling,
}
