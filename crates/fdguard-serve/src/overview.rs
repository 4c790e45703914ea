//! What a serving fdguard shows: one value per tick, from which the API, the metrics and the page
//! are made.

use fdguard_core::judge::Verdict;
use fdguard_core::snapshot::Limits;
use fdguard_core::workload::Workload;
use fdguard_core::{Gap, Pid, Text};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::finding_book::FindingRecord;
use crate::service::ServiceKey;

/// Schema of the whole.
pub const OVERVIEW_SCHEMA: &str = "fdguard.serve.overview/1";

/// The host at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// [`OVERVIEW_SCHEMA`].
    pub schema: &'static str,
    /// When.
    pub taken_at: Timestamp,
    /// Its name.
    pub host: String,
    /// Seconds between two scans.
    pub every_seconds: f64,
    /// How many processes were seen.
    pub processes: u64,
    /// Every service that has processes, or has an open finding.
    pub services: Vec<ServiceView>,
    /// The processes that are watched.
    pub watched: Vec<WatchedView>,
    /// Findings that were reported, by number.
    pub findings: Vec<FindingRecord>,
    /// What serving costs.
    pub own: OwnCost,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
    /// Whether the API can answer about all hosts.
    pub fleet: bool,
}

/// A service at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceView {
    /// Its identity.
    #[serde(flatten)]
    pub key: ServiceKey,
    /// The container and the pod that all of its processes are in; absent for other kinds.
    pub workload: Option<Workload>,
    /// Its processes.
    pub processes: u64,
    /// How many of them are watched.
    pub watched: u64,
    /// The descriptors of all of them; absent where no count could be read.
    pub open_fds: Option<u64>,
    /// The soft limit of the process that is nearest to its own.
    pub limit: Option<u64>,
    /// The hard limit of that process.
    pub hard_limit: Option<u64>,
    /// The first number that `select()` cannot handle, if a watched process can reach it and could
    /// call that.
    pub select_limit: Option<u64>,
    /// The share of the soft limit that is used: 1 is full.
    pub usage_ratio: Option<f64>,
    /// Change of the descriptors per second, over the last minutes.
    pub growth_per_second: Option<f64>,
    /// The worst verdict on its watched processes; unknown where none is watched.
    pub verdict: Verdict,
    /// Time left to each limit that is approached.
    pub seconds_to_limit: Vec<LimitTime>,
    /// Classes of descriptors of its watched processes; absent where none could be listed.
    pub classes: Option<Vec<ClassTally>>,
    /// What these descriptors refer to. For the history: an overview would become too large.
    #[serde(skip)]
    pub targets: Option<Vec<TargetTally>>,
    /// Numbers of its open findings.
    pub findings: Vec<u64>,
    /// How often all of its processes were replaced since fdguard serves.
    pub restarts: u64,
    /// When its present processes were first seen.
    pub since: Timestamp,
}

/// How long it takes to a limit at the present rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitTime {
    /// The limit.
    pub limit: String,
    /// Seconds.
    pub seconds: f64,
}

/// How many descriptors of a class there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassTally {
    /// The class.
    pub class: String,
    /// How many.
    pub count: u64,
}

/// How many descriptors refer to a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetTally {
    /// The family of classes: a socket that changes state stays in it.
    pub class: String,
    /// The target, numbers collapsed; absent for those of the class that have no row of their own.
    pub target: Option<Text>,
    /// How many.
    pub count: u64,
}

/// A watched process at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct WatchedView {
    /// Its number.
    pub pid: Pid,
    /// Its command.
    pub comm: Text,
    /// Its service.
    pub service: ServiceKey,
    /// Its unit, container and pod.
    pub workload: Option<Workload>,
    /// Its descriptors.
    pub count: Option<u64>,
    /// Change of its descriptors per second, over the last minutes.
    pub growth_per_second: Option<f64>,
    /// Its limits.
    pub limits: Limits,
    /// The verdict.
    pub verdict: Verdict,
    /// Samples so far.
    pub samples: u64,
    /// How many of them listed the table: the others only counted.
    pub listings: u64,
    /// Time left to each limit that is approached.
    pub seconds_to_limit: Vec<LimitTime>,
    /// Its classes; absent where it could not be listed.
    pub classes: Option<Vec<ClassTally>>,
    /// Whether it has an open finding.
    pub has_findings: bool,
}

/// Any process at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessView {
    /// Its number.
    pub pid: Pid,
    /// Its command.
    pub comm: Text,
    /// Its service.
    pub service: ServiceKey,
    /// Its user; absent where unknown.
    pub uid: Option<u32>,
    /// Its descriptors; absent where unknown.
    pub count: Option<u64>,
    /// Change of its descriptors per second, over the last minutes.
    pub growth_per_second: Option<f64>,
    /// Its limits.
    pub limits: Limits,
    /// The verdict; unknown unless it is watched.
    pub verdict: Verdict,
    /// Time left to each limit that is approached.
    pub seconds_to_limit: Vec<LimitTime>,
    /// Whether it is watched.
    pub is_watched: bool,
}

impl ProcessView {
    /// The shortest time to a limit.
    #[must_use]
    pub fn time_left(&self) -> Option<f64> {
        let times = self.seconds_to_limit.iter().map(|one| one.seconds);
        times.min_by(f64::total_cmp)
    }

    /// The share of its soft limit that is used.
    #[must_use]
    pub fn usage_ratio(&self) -> Option<f64> {
        let soft = self.limits.soft.filter(|soft| *soft > 0)?;
        Some(self.count? as f64 / soft as f64)
    }
}

/// What serving costs, and what it lost.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OwnCost {
    /// Processor time so far, of all threads.
    pub cpu_seconds: f64,
    /// Processor time of commands that were started and have ended: evidence, traces, profiles.
    /// No budget bounds it. Absent where unknown.
    pub children_cpu_seconds: Option<f64>,
    /// Processor time of the last tick.
    pub tick_cpu_seconds: f64,
    /// Wall-clock time of the last tick.
    pub tick_seconds: f64,
    /// Ticks so far.
    pub ticks: u64,
    /// Ticks that began late because the one before was not done.
    pub late_ticks: u64,
    /// Own descriptors; absent where unknown.
    pub open_fds: Option<u64>,
    /// Own resident memory; absent where unknown.
    pub resident_bytes: Option<u64>,
    /// Looks that were put off because the processor budget was used up.
    pub deferred_looks: u64,
    /// Processes that deserve a watch and have none: there are too many.
    pub unwatched: u64,
    /// Findings that had no room.
    pub dropped_findings: u64,
    /// The history.
    pub history: StoreHealth,
    /// Messages to other systems.
    pub deliveries: DeliveryCounts,
}

/// How the history fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreHealth {
    /// Whether there is one.
    pub enabled: bool,
    /// Bytes on disk.
    pub bytes: u64,
    /// Rows that could not be written.
    pub lost_rows: u64,
    /// Why the last write failed; absent if it did not.
    pub error: Option<String>,
}

/// Messages to Alertmanager and webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeliveryCounts {
    /// Delivered.
    pub sent: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Given up, or dropped from a full queue.
    pub dropped: u64,
    /// Waiting.
    pub queued: u64,
}

impl Overview {
    /// Nothing seen yet.
    #[must_use]
    pub fn empty(host: String, every_seconds: f64, now: Timestamp) -> Self {
        Self {
            schema: OVERVIEW_SCHEMA,
            taken_at: now,
            host,
            every_seconds,
            processes: 0,
            services: Vec::new(),
            watched: Vec::new(),
            findings: Vec::new(),
            own: OwnCost::default(),
            gaps: Vec::new(),
            fleet: false,
        }
    }
}

impl ServiceView {
    /// The shortest time to a limit.
    #[must_use]
    pub fn time_left(&self) -> Option<f64> {
        let times = self.seconds_to_limit.iter().map(|one| one.seconds);
        times.min_by(f64::total_cmp)
    }
}
