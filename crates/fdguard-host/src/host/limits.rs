//! Session limits that the kernel does not enforce: the host checks them and ends sessions that
//! exceed them.

use std::fs;
use std::sync::Arc;

use fdguard_core::log_event::LogEvent;
use fdguard_proc::{smaps, statm};
use fdguard_process::tree::{EnforcedLimits, LimitMechanism};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use super::Inner;
use super::entry::Entry;
use crate::Error;
use crate::receipt::{Overuse, SessionEndReason, SessionLimit};
use crate::session::{ExecOutcome, ExecResult, SessionLimits};

/// What enforces a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LimitKeeper {
    /// The kernel, for all processes of the session together.
    Cgroup,
    /// The kernel, for each process separately.
    Rlimit,
    /// The host, which checks once a second.
    Host,
    /// The kernel for each process, and the host for all of them together.
    RlimitAndHost,
}

/// What enforces each limit of a session; `null` where no limit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LimitKeepers {
    /// Memory in bytes.
    pub memory: Option<LimitKeeper>,
    /// CPU time.
    pub cpu: Option<LimitKeeper>,
    /// Number of processes.
    pub processes: Option<LimitKeeper>,
    /// Descriptors.
    pub descriptors: Option<LimitKeeper>,
}

impl LimitKeepers {
    pub(super) fn new(limits: SessionLimits, enforced: Option<EnforcedLimits>) -> Option<Self> {
        let enforced = enforced.filter(|_| limits != SessionLimits::default())?;
        // A limit for all processes that the kernel keeps for each alone is half kept.
        let all = |is_asked: bool, by| is_asked.then(|| for_all(by));
        let each = |is_asked: bool, by| match by {
            LimitMechanism::Cgroup => is_asked.then_some(LimitKeeper::Cgroup),
            LimitMechanism::Rlimit => is_asked.then_some(LimitKeeper::Rlimit),
            LimitMechanism::Nobody => None,
        };
        Some(Self {
            memory: all(limits.memory_bytes.is_some(), enforced.memory),
            cpu: each(limits.cpu_seconds.is_some(), enforced.cpu),
            processes: all(limits.processes.is_some(), enforced.processes),
            descriptors: each(limits.descriptors.is_some(), enforced.descriptors),
        })
    }
}

fn for_all(by: LimitMechanism) -> LimitKeeper {
    match by {
        LimitMechanism::Cgroup => LimitKeeper::Cgroup,
        LimitMechanism::Rlimit => LimitKeeper::RlimitAndHost,
        LimitMechanism::Nobody => LimitKeeper::Host,
    }
}

/// The limits that the host has to check itself.
fn watched(limits: SessionLimits, enforced: EnforcedLimits) -> SessionLimits {
    let is_ours = |by| by != LimitMechanism::Cgroup;
    SessionLimits {
        memory_bytes: limits.memory_bytes.filter(|_| is_ours(enforced.memory)),
        processes: limits.processes.filter(|_| is_ours(enforced.processes)),
        ..SessionLimits::default()
    }
}

/// Resource usage of a session; absent if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    memory: Option<u64>,
    processes: u64,
}

/// The first limit that is passed.
fn judge(limits: SessionLimits, usage: Usage) -> Option<Overuse> {
    let over = |limit, allowed: Option<u64>, used: Option<u64>| {
        let (allowed, used) = (allowed?, used?);
        (used > allowed).then_some(Overuse {
            limit,
            allowed,
            used,
        })
    };
    let processes = limits.processes.map(u64::from);
    over(SessionLimit::Memory, limits.memory_bytes, usage.memory)
        .or_else(|| over(SessionLimit::Processes, processes, Some(usage.processes)))
}

/// Memory of all processes together. Shared memory is counted once if the kernel reports it; that
/// is expensive, so it is done only if the cheap sum, which counts it for each process, is over the
/// limit.
fn memory(members: &[u32], allowed: u64) -> Option<u64> {
    let sum = |of: fn(u32) -> Option<u64>| -> Option<u64> {
        let known: Vec<u64> = members.iter().filter_map(|pid| of(*pid)).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    let resident = sum(resident)?;
    if resident <= allowed {
        return Some(resident);
    }
    sum(|pid| share(pid).or_else(|| self::resident(pid)))
}

fn resident(pid: u32) -> Option<u64> {
    let statm = fs::read(format!("/proc/{pid}/statm")).ok()?;
    statm::resident(&statm, rustix::param::page_size())
}

fn share(pid: u32) -> Option<u64> {
    smaps::proportional(&fs::read(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

fn find_overuse(entry: &Entry) -> Option<Overuse> {
    let limits = watched(entry.limits, entry.session.enforced()?);
    if limits == SessionLimits::default() {
        return None;
    }
    let members = entry.session.members();
    let usage = Usage {
        memory: limits
            .memory_bytes
            .and_then(|allowed| memory(&members, allowed)),
        processes: u64::try_from(members.len()).unwrap_or(u64::MAX),
    };
    judge(limits, usage)
}

impl Inner {
    /// Checks all sessions with such limits, for as long as the host runs.
    pub(super) async fn watch_limits(self: Arc<Self>) {
        let mut ticks = interval(self.options.watch_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stopped.cancelled() => return,
            }
            let has_some = |entry: &&Arc<Entry>| {
                entry.limits.memory_bytes.is_some() || entry.limits.processes.is_some()
            };
            let watched: Vec<_> = self.table().entries().filter(has_some).cloned().collect();
            if watched.is_empty() {
                continue;
            }
            // Reading about processes may take milliseconds.
            let looks = self.runtime.spawn_blocking(move || {
                let look = |entry: Arc<Entry>| find_overuse(&entry).map(|over| (entry, over));
                watched.into_iter().filter_map(look).collect::<Vec<_>>()
            });
            for (entry, overuse) in looks.await.unwrap_or_default() {
                self.overused(&entry, overuse);
            }
        }
    }

    fn overused(self: &Arc<Self>, entry: &Arc<Entry>, overuse: Overuse) {
        if entry.is_ending() || entry.overuse.set(overuse).is_err() {
            return;
        }
        let event = LogEvent::new("limit_reached").with("id", entry.id.as_str());
        let event = event.with("limit", word(overuse.limit));
        let event = event.with("allowed", overuse.allowed);
        self.tell(event.with("used", overuse.used));
        self.begin_end(entry, SessionEndReason::Limit);
    }
}

/// A limit's name in event lines.
pub(super) fn word(limit: SessionLimit) -> &'static str {
    match limit {
        SessionLimit::Memory => "memory",
        SessionLimit::Processes => "processes",
    }
}

/// The limit that ended a session: one that the host saw exceeded, or the memory limit of its
/// cgroup, which cannot be exceeded.
pub(super) fn overuse(entry: &Entry) -> Option<Overuse> {
    let starved = || {
        let allowed = entry.limits.memory_bytes?;
        entry.session.is_starved().then_some(Overuse {
            limit: SessionLimit::Memory,
            allowed,
            used: allowed,
        })
    };
    entry.overuse.get().copied().or_else(starved)
}

/// Sets the outcome of a command that was ended because of a limit.
pub(super) fn answer(
    entry: &Entry,
    answer: Result<ExecResult, Error>,
) -> Result<ExecResult, Error> {
    let mut done = answer?;
    let by_itself = matches!(done.outcome, ExecOutcome::Exited { .. });
    if overuse(entry).is_some() && !by_itself {
        done.outcome = ExecOutcome::LimitReached;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_is_passed_is_named_with_what_was_used() {
        let limits = SessionLimits {
            memory_bytes: Some(100),
            processes: Some(3),
            ..SessionLimits::default()
        };
        let usage = |memory, processes| Usage { memory, processes };
        assert_eq!(judge(limits, usage(Some(100), 3)), None);
        assert_eq!(judge(limits, usage(None, 3)), None);
        let memory = Overuse {
            limit: SessionLimit::Memory,
            allowed: 100,
            used: 101,
        };
        assert_eq!(judge(limits, usage(Some(101), 9)), Some(memory));
        let processes = Overuse {
            limit: SessionLimit::Processes,
            allowed: 3,
            used: 4,
        };
        assert_eq!(judge(limits, usage(None, 4)), Some(processes));
        assert_eq!(
            judge(SessionLimits::default(), usage(Some(u64::MAX), 9999)),
            None
        );
    }

    #[test]
    fn what_the_kernel_keeps_for_all_is_not_watched_and_the_rest_is() {
        let limits = SessionLimits {
            memory_bytes: Some(1),
            processes: Some(1),
            cpu_seconds: Some(1),
            descriptors: None,
        };
        let enforced = |memory, processes| EnforcedLimits {
            memory,
            processes,
            cpu: LimitMechanism::Rlimit,
            ..EnforcedLimits::default()
        };
        let ours = watched(
            limits,
            enforced(LimitMechanism::Rlimit, LimitMechanism::Nobody),
        );
        assert_eq!(
            (ours.memory_bytes, ours.processes, ours.cpu_seconds),
            (Some(1), Some(1), None)
        );
        let theirs = watched(
            limits,
            enforced(LimitMechanism::Cgroup, LimitMechanism::Cgroup),
        );
        assert_eq!(theirs, SessionLimits::default());
        let kept = LimitKeepers::new(
            limits,
            Some(enforced(LimitMechanism::Rlimit, LimitMechanism::Cgroup)),
        );
        let expected = LimitKeepers {
            memory: Some(LimitKeeper::RlimitAndHost),
            cpu: Some(LimitKeeper::Rlimit),
            processes: Some(LimitKeeper::Cgroup),
            descriptors: None,
        };
        assert_eq!(kept, Some(expected));
        assert_eq!(
            LimitKeepers::new(SessionLimits::default(), Some(EnforcedLimits::default())),
            None
        );
        assert_eq!(LimitKeepers::new(limits, None), None);
    }

    #[test]
    fn our_own_memory_is_seen_and_a_process_that_is_gone_counts_for_nothing() {
        let me = std::process::id();
        let rough = memory(&[me], u64::MAX).unwrap();
        assert!(rough > 100_000, "{rough}");
        let exact = memory(&[me, u32::MAX], 0).unwrap();
        assert!(exact > 0 && exact <= rough * 2, "{exact} {rough}");
        assert_eq!(memory(&[u32::MAX], 0), None);
    }
}
