//! Which processes belong to which service, and when a service was restarted.
//!
//! One [`Roster::observe`] per scan. It opens nothing and reads no clock: the caller names new
//! processes and passes the time.

use std::collections::{BTreeSet, HashMap};

use fdguard_core::Text;
use fdguard_core::host::{HostRow, HostView};
use fdguard_core::snapshot::Limits;
use fdguard_proc::ProcKey;
use jiff::Timestamp;

use crate::count_track::CountTrack;
use crate::rate_window::ProcessRate;
use crate::service::{ServiceKey, ServiceKind};

/// A service without processes is remembered for this many seconds: its next process continues it.
const REMEMBERED: f64 = 3600.0;
/// The most services that are remembered beyond those that run.
const MOST_IDLE: usize = 4096;

/// Number of a service in this roster.
pub(crate) type ServiceId = u32;

/// All visible processes and their services.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    processes: HashMap<ProcKey, RosterProcess>,
    services: HashMap<ServiceId, RosterService>,
    ids: HashMap<ServiceKey, ServiceId>,
    next: ServiceId,
    scans: u64,
}

/// A process of the roster.
#[derive(Clone, Debug)]
pub(crate) struct RosterProcess {
    pub(crate) service: ServiceId,
    pub(crate) comm: Text,
    pub(crate) uid: Option<u32>,
    pub(crate) count: Option<u64>,
    pub(crate) limits: Limits,
    pub(crate) track: Option<CountTrack>,
    pub(crate) rate: ProcessRate,
    /// Whether the count differs from that of the last scan.
    pub(crate) has_changed: bool,
    /// The scan in which it was last seen.
    scan: u64,
    /// How often it was seen; saturates.
    seen: u8,
}

/// A service of the roster.
#[derive(Clone, Debug)]
pub(crate) struct RosterService {
    pub(crate) key: ServiceKey,
    pub(crate) members: BTreeSet<ProcKey>,
    /// How often all of its processes were replaced.
    pub(crate) restarts: u64,
    /// When its present processes were first seen.
    pub(crate) since: Timestamp,
    /// When it lost its last process, in seconds.
    idle_since: Option<f64>,
    /// The processes that run together, or ran last.
    generation: Option<Generation>,
}

impl RosterService {
    /// The process that runs longest.
    pub(crate) fn eldest(&self) -> Option<ProcKey> {
        self.members
            .iter()
            .min_by_key(|key| key.start_ticks)
            .copied()
    }

    /// Whether its next start counts as a restart.
    pub(crate) fn has_run(&self) -> bool {
        let has_lasted = self.generation.is_some_and(|one| one.scans >= RAN);
        has_lasted || self.key.kind != ServiceKind::Command
    }
}

/// Processes of a service of which each ran together with another one.
#[derive(Clone, Copy, Debug)]
struct Generation {
    /// The eldest that is left.
    eldest: ProcKey,
    scans: u32,
}

/// A command is not restarted each time that somebody types it: only a generation that was seen
/// this often counts as one that ran.
const RAN: u32 = 3;

/// What happened between two scans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RosterEvent {
    /// A service was seen for the first time.
    Appeared { service: ServiceId },
    /// All processes of a service were replaced.
    Restarted {
        service: ServiceId,
        /// The eldest of the old ones.
        old: ProcKey,
        /// The eldest of the new ones.
        new: ProcKey,
    },
    /// A service lost its last process.
    Stopped { service: ServiceId },
    /// A process is gone.
    Exited { process: ProcKey },
}

impl Roster {
    /// Takes in one scan. `name` is called for processes that are new or have a new command.
    pub(crate) fn observe(
        &mut self,
        view: &HostView,
        now: f64,
        at: Timestamp,
        mut name: impl FnMut(&HostRow) -> ServiceKey,
    ) -> Vec<RosterEvent> {
        self.scans += 1;
        let mut events = Vec::new();
        for row in view.rows.iter().filter(|row| !row.zombie) {
            let Some(key) = row.key() else { continue };
            let service = self.service_of(key, row, at, &mut name, &mut events);
            self.note(key, row, service, now);
        }
        self.drop_exited(now, &mut events);
        self.find_restarts(at, &mut events);
        self.forget(now);
        events
    }

    /// The service of a row: known, or asked for. A new process is asked about twice, since it may
    /// still be on its way to its cgroup and its program.
    fn service_of(
        &mut self,
        key: ProcKey,
        row: &HostRow,
        at: Timestamp,
        name: &mut impl FnMut(&HostRow) -> ServiceKey,
        events: &mut Vec<RosterEvent>,
    ) -> ServiceId {
        let known = self.processes.get(&key);
        if let Some(known) = known.filter(|known| known.seen >= 2 && known.comm == row.comm) {
            return known.service;
        }
        let old = known.map(|known| known.service);
        let service = self.intern(name(row), at, events);
        if let Some(old) = old.filter(|old| *old != service) {
            self.leave(key, old, events);
        }
        service
    }

    /// A process turns out to belong elsewhere. A service that only it was in never existed.
    fn leave(&mut self, key: ProcKey, old: ServiceId, events: &mut Vec<RosterEvent>) {
        if let Some(process) = self.processes.get_mut(&key) {
            process.seen = 0;
        }
        let Some(left) = self.services.get_mut(&old) else {
            return;
        };
        left.members.remove(&key);
        let is_only_its = left.generation.is_none_or(|one| one.eldest == key);
        if left.members.is_empty() && is_only_its && left.restarts == 0 {
            self.ids.remove(&left.key);
            self.services.remove(&old);
            events.retain(|event| *event != RosterEvent::Appeared { service: old });
        }
    }

    fn intern(
        &mut self,
        key: ServiceKey,
        at: Timestamp,
        events: &mut Vec<RosterEvent>,
    ) -> ServiceId {
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.ids.insert(key.clone(), id);
        self.services.insert(
            id,
            RosterService {
                key,
                members: BTreeSet::new(),
                restarts: 0,
                since: at,
                idle_since: None,
                generation: None,
            },
        );
        events.push(RosterEvent::Appeared { service: id });
        id
    }

    fn note(&mut self, key: ProcKey, row: &HostRow, service: ServiceId, now: f64) {
        if let Some(service) = self.services.get_mut(&service) {
            service.members.insert(key);
        }
        let process = self.processes.entry(key).or_insert_with(|| RosterProcess {
            service,
            comm: row.comm.clone(),
            uid: row.uid,
            count: None,
            limits: row.limits,
            track: None,
            rate: ProcessRate::default(),
            has_changed: false,
            scan: 0,
            seen: 0,
        });
        process.service = service;
        if process.comm != row.comm {
            process.comm = row.comm.clone();
        }
        process.uid = row.uid;
        process.limits = row.limits;
        process.count = row.count;
        if let Some(count) = row.count {
            process.rate.observe(now, count);
        }
        process.scan = self.scans;
        process.seen = process.seen.saturating_add(1);
        process.has_changed = match (&mut process.track, row.count) {
            (Some(track), Some(count)) => track.observe(count, now),
            (none, Some(count)) => {
                *none = Some(CountTrack::new(count, now));
                true
            }
            (_, None) => false,
        };
    }

    fn drop_exited(&mut self, now: f64, events: &mut Vec<RosterEvent>) {
        let scan = self.scans;
        let gone = self.processes.iter().filter(|(_, one)| one.scan != scan);
        let gone: Vec<(ProcKey, ServiceId)> = gone.map(|(key, one)| (*key, one.service)).collect();
        for (key, id) in gone {
            self.processes.remove(&key);
            events.push(RosterEvent::Exited { process: key });
            let Some(service) = self.services.get_mut(&id) else {
                continue;
            };
            service.members.remove(&key);
            if service.members.is_empty() {
                service.idle_since = Some(now);
                events.push(RosterEvent::Stopped { service: id });
            }
        }
    }

    /// A service is restarted when all of its processes are new. Workers that come and go beside a
    /// process that stays are its own business.
    fn find_restarts(&mut self, at: Timestamp, events: &mut Vec<RosterEvent>) {
        let processes = &self.processes;
        let is_new = |key: &ProcKey| processes.get(key).is_none_or(|one| one.seen <= 1);
        for (id, service) in &mut self.services {
            let Some(eldest) = service.eldest() else {
                continue;
            };
            service.idle_since = None;
            let are_new = service.members.iter().all(is_new);
            match &mut service.generation {
                Some(now) if !are_new => {
                    now.eldest = eldest;
                    now.scans = now.scans.saturating_add(1);
                }
                last => {
                    let old = last.replace(Generation { eldest, scans: 1 });
                    let is_command = service.key.kind == ServiceKind::Command;
                    // A process that only left it for a scan did not restart it.
                    let Some(old) = old.filter(|old| old.eldest != eldest) else {
                        continue;
                    };
                    service.since = at;
                    if is_command && old.scans < RAN {
                        continue;
                    }
                    service.restarts += 1;
                    events.retain(|event| *event != RosterEvent::Stopped { service: *id });
                    events.push(RosterEvent::Restarted {
                        service: *id,
                        old: old.eldest,
                        new: eldest,
                    });
                }
            }
        }
    }

    /// Forgets services that have had no process for long, and the longest idle ones of too many.
    fn forget(&mut self, now: f64) {
        let mut idle: Vec<(f64, ServiceId)> = self
            .services
            .iter()
            .filter(|(_, service)| service.members.is_empty())
            .filter_map(|(id, service)| Some((service.idle_since?, *id)))
            .collect();
        idle.sort_by(|a, b| a.0.total_cmp(&b.0));
        let beyond = idle.len().saturating_sub(MOST_IDLE);
        for (at, (since, id)) in idle.into_iter().enumerate() {
            let is_due = at < beyond || now - since > REMEMBERED;
            if is_due && let Some(service) = self.services.remove(&id) {
                self.ids.remove(&service.key);
            }
        }
    }

    /// Every visible process.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (ProcKey, &RosterProcess)> {
        self.processes.iter().map(|(key, process)| (*key, process))
    }

    /// One of them.
    pub(crate) fn process(&self, key: ProcKey) -> Option<&RosterProcess> {
        self.processes.get(&key)
    }

    /// Every service, also those without processes.
    pub(crate) fn services(&self) -> impl Iterator<Item = (ServiceId, &RosterService)> {
        self.services.iter().map(|(id, service)| (*id, service))
    }

    /// One of them.
    pub(crate) fn service(&self, id: ServiceId) -> Option<&RosterService> {
        self.services.get(&id)
    }
}

#[cfg(test)]
#[path = "roster_tests.rs"]
mod tests;
