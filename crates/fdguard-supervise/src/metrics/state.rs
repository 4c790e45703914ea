//! The reported state of the supervisor and its services. The loop fills it; text and JSON are
//! derived from it alone.
//!
//! Unknown is `None` and omitted from the text: an absent gauge means "not measured", 0 means
//! "none".

use std::collections::BTreeMap;
use std::time::Duration;

use fdguard_core::Class;
use jiff::Timestamp;

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct MetricsState {
    /// The supervisor itself.
    pub own: SupervisorMetrics,
    /// The machine.
    pub host: HostMetrics,
    /// Its services.
    pub services: Vec<ServiceMetrics>,
    /// Hazards that protection prevented, by rule.
    pub prevented: BTreeMap<String, u64>,
}

/// The supervisor itself.
#[derive(Clone, Debug, Default)]
pub struct SupervisorMetrics {
    /// Its open descriptors.
    pub open_fds: Option<u64>,
    /// Its soft limit.
    pub max_fds: Option<u64>,
    /// When it was started.
    pub started: Option<Timestamp>,
    /// Its resident memory in bytes.
    pub resident: Option<u64>,
}

/// The machine: `/proc/sys/fs/file-nr`.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostMetrics {
    /// Open files of all processes.
    pub allocated: Option<u64>,
    /// The maximum.
    pub maximum: Option<u64>,
}

/// One service.
#[derive(Clone, Debug, Default)]
pub struct ServiceMetrics {
    /// Its name, from the configuration.
    pub name: String,
    /// Its processes, the program itself first; none while it is down.
    pub processes: Vec<ProcessMetrics>,
    /// Since when it has been up; absent while it is down.
    pub up_since: Option<Timestamp>,
    /// Whether its readiness check succeeds; absent without one.
    pub ready: Option<bool>,
    /// Whether its liveness check succeeds; absent without one, and before the first result.
    pub healthy: Option<bool>,
    /// Why it does not.
    pub reason: Option<String>,
    /// Restarts by reason (`exit`, `signal`, `fd_budget`, `health`, `asked`, …).
    pub restarts: BTreeMap<String, u64>,
    /// Budgets that were exceeded.
    pub breaches: u64,
    /// When the last one was.
    pub last_breach: Option<Timestamp>,
    /// Time until no descriptor is left at this rate; absent if nothing grows.
    pub eta: Option<Duration>,
    /// Processes that did not exit when requested, since the supervisor started.
    pub survivors: u64,
    /// Lines of output that were dropped since the supervisor started.
    pub lines_dropped: u64,
    /// The targets of its descriptors, the most frequent first; only for callers with the token.
    pub targets: Vec<TargetMetrics>,
}

/// Descriptors with the same target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetMetrics {
    /// The target: a path or a peer, numbers collapsed.
    pub name: String,
    /// How many.
    pub count: u64,
}

/// A process of a service.
#[derive(Clone, Debug, Default)]
pub struct ProcessMetrics {
    /// Its id.
    pub pid: u32,
    /// The name of its program.
    pub comm: String,
    /// Open descriptors.
    pub open_fds: Option<u64>,
    /// Soft limit.
    pub soft: Option<u64>,
    /// Hard limit.
    pub hard: Option<u64>,
    /// The highest number that is open.
    pub highest: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Resident memory in bytes.
    pub resident: Option<u64>,
    /// Children that exited and were not waited for.
    pub zombies: Option<u64>,
    /// Open descriptors by class, when they were last listed.
    pub classes: Option<Vec<(Class, u64)>>,
}

impl ProcessMetrics {
    /// How much of the soft limit is used, from 0 to 1.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let soft = self.soft.filter(|soft| *soft > 0)?;
        Some(number(self.open_fds?) / number(soft))
    }
}

impl ServiceMetrics {
    /// The process nearest to its limit; the program itself if that is not known.
    #[must_use]
    pub fn worst(&self) -> Option<&ProcessMetrics> {
        let known = self.processes.iter().filter(|one| one.ratio().is_some());
        let worst = known.max_by(|a, b| {
            a.ratio()
                .unwrap_or(0.0)
                .total_cmp(&b.ratio().unwrap_or(0.0))
        });
        worst.or_else(|| self.processes.first())
    }
}

/// Counts stay far below 2⁵³, where this is exact.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and bytes stay far below 2^53"
)]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}
