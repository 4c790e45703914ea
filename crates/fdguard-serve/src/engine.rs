//! One tick after the other: scan the host, look at what deserves it, judge, and report changes.
//!
//! Everything that decides is in the modules that it calls; this is the order in which they are
//! called, and the only place that reads processes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use fdguard_core::Gap;
use fdguard_core::host::HostView;
use fdguard_core::judge::Verdict;
use fdguard_core::rule::RuleSettings;
use fdguard_core::workload::Workload;
use fdguard_diagnose::watching::{LookDepth, Trouble};
use fdguard_probe::{Probe, Radar};
use fdguard_proc::stat::TICKS_PER_SECOND;
use fdguard_proc::{BootId, ProcKey};
use jiff::{SignedDuration, Timestamp};

use crate::budget::CpuBudget;
use crate::common_workload::common_workload;
use crate::finding_book::{FindingBook, FindingChange, FindingState};
use crate::overview::{
    ClassTally, LimitTime, Overview, OwnCost, ProcessView, ServiceView, WatchedView,
};
use crate::own_cost;
use crate::past_services::{Continuation, KeptService, PastServices, ServingMoment};
use crate::process_watch::{self, ProcessWatch};
use crate::program_stamp::ProgramStamp;
use crate::rate_window::RateWindow;
use crate::roster::{Roster, RosterEvent, RosterService, ServiceId};
use crate::service::{ServiceKey, ServiceKind};
use crate::service_names::ServiceNames;
use crate::target_tally::TargetTallies;
use crate::watch_slots;

/// Settings of the engine.
#[derive(Clone, Debug)]
pub(crate) struct EngineOptions {
    pub(crate) host: String,
    pub(crate) every: Duration,
    /// Share of one core.
    pub(crate) budget: f64,
    /// The most processes under watch.
    pub(crate) max_watched: usize,
}

/// The state between two ticks.
pub(crate) struct Engine<'p> {
    probe: &'p Probe,
    options: EngineOptions,
    settings: RuleSettings,
    radar: Radar,
    roster: Roster,
    watched: HashMap<ProcKey, ProcessWatch<'p>>,
    /// The unit, container and pod of each process.
    workloads: HashMap<ProcKey, Option<Workload>>,
    /// The program of the eldest process of each service.
    programs: HashMap<ServiceId, Option<ProgramStamp>>,
    /// What ran before this start.
    past: PastServices,
    /// The running boot; `None` if it cannot be read.
    boot: Option<BootId>,
    rates: HashMap<ServiceId, RateWindow>,
    pub(crate) book: FindingBook,
    budget: CpuBudget,
    cost: OwnCost,
    /// Why watches could not be kept.
    troubles: Vec<Gap>,
}

/// When a tick is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TickTime {
    /// Since the loop began, without jumps.
    pub(crate) now: Duration,
    /// The time of day.
    pub(crate) at: Timestamp,
    /// Since the machine started.
    pub(crate) uptime: Duration,
}

/// A change to report.
#[derive(Clone, Debug)]
pub(crate) enum ServeEvent {
    Appeared(ServiceKey),
    Stopped {
        service: ServiceKey,
        /// While fdguard serve did not run.
        is_past: bool,
    },
    Restarted {
        service: ServiceKey,
        old: u32,
        new: u32,
        /// Whether the program was replaced; `None` if that could not be read.
        deploy: Option<bool>,
        /// When it began, if fdguard serve did not run then.
        past: Option<Timestamp>,
    },
    Finding {
        change: FindingChange,
        id: u64,
    },
}

impl ServeEvent {
    /// Whether a service began, ended or was restarted.
    pub(crate) fn is_of_service(&self) -> bool {
        !matches!(self, Self::Finding { .. })
    }
}

impl<'p> Engine<'p> {
    pub(crate) fn new(
        probe: &'p Probe,
        options: EngineOptions,
        settings: RuleSettings,
        book: FindingBook,
        past: PastServices,
    ) -> Self {
        let budget = CpuBudget::new(options.budget);
        Self {
            probe,
            options,
            settings,
            radar: Radar::background(),
            roster: Roster::default(),
            watched: HashMap::new(),
            workloads: HashMap::new(),
            programs: HashMap::new(),
            past,
            boot: fdguard_proc::process::current_boot().ok(),
            rates: HashMap::new(),
            book,
            budget,
            cost: OwnCost::default(),
            troubles: Vec::new(),
        }
    }

    /// One tick.
    pub(crate) fn tick(&mut self, time: TickTime) -> (Overview, Vec<ServeEvent>) {
        let TickTime { now, at, .. } = time;
        let started = Instant::now();
        let cpu = own_cost::cpu_time();
        self.budget.advance(now);
        self.settings.today = at.to_zoned(jiff::tz::TimeZone::UTC).date();
        let view = self.scan();
        let seconds = now.as_secs_f64();
        let mut events = self.enrol(&view, time);
        self.budget
            .spend_scan(own_cost::cpu_time().saturating_sub(cpu));
        self.choose(seconds);
        self.look_at_all(now);
        events.extend(self.judge_all(seconds, at));
        self.cost.ticks += 1;
        self.cost.tick_seconds = started.elapsed().as_secs_f64();
        let total = own_cost::cpu_time();
        self.cost.tick_cpu_seconds = total.saturating_sub(cpu).as_secs_f64();
        self.cost.cpu_seconds = total.as_secs_f64();
        let overview = self.overview(&view, at);
        (overview, events)
    }

    /// Ticks that were skipped because one took too long.
    pub(crate) fn was_late(&mut self) {
        self.cost.late_ticks += 1;
    }

    fn scan(&mut self) -> HostView {
        self.radar
            .scan(self.probe)
            .unwrap_or_else(|error| HostView {
                gaps: vec![Gap::new(
                    "all processes",
                    error.to_string(),
                    "check that /proc is mounted, and raise fdguard's own limit (ulimit -n)",
                )],
                ..HostView::default()
            })
    }

    /// Assigns processes to services.
    fn enrol(&mut self, view: &HostView, time: TickTime) -> Vec<ServeEvent> {
        if view.rows.is_empty() {
            // A scan that failed does not mean that everything has ended.
            return Vec::new();
        }
        let names = ServiceNames::new(self.probe, view);
        let workloads = &mut self.workloads;
        let now = time.now.as_secs_f64();
        let happened = self.roster.observe(view, now, time.at, |row| {
            let (service, workload) = names.find(row);
            if let Some(key) = row.key() {
                workloads.insert(key, workload);
            }
            service
        });
        let mut events = Vec::new();
        for event in happened {
            events.extend(self.follow(&event, time));
        }
        let stopped = self.past.stopped().into_iter();
        events.extend(stopped.map(|service| ServeEvent::Stopped {
            service,
            is_past: true,
        }));
        self.past.forget(now);
        events
    }

    fn follow(&mut self, event: &RosterEvent, time: TickTime) -> Option<ServeEvent> {
        let key = |roster: &Roster, id: &ServiceId| Some(roster.service(*id)?.key.clone());
        match event {
            RosterEvent::Appeared { service } => self.follow_appearance(*service, time),
            RosterEvent::Restarted { service, old, new } => {
                let stamp = ProgramStamp::read(self.probe, new.pid);
                let before = self.programs.insert(*service, stamp.clone()).flatten();
                if let Some(rate) = self.rates.get_mut(service) {
                    rate.restart();
                }
                Some(ServeEvent::Restarted {
                    service: key(&self.roster, service)?,
                    old: old.pid,
                    new: new.pid,
                    deploy: is_deploy(before.as_ref(), stamp.as_ref()),
                    past: None,
                })
            }
            RosterEvent::Stopped { service } => Some(ServeEvent::Stopped {
                service: key(&self.roster, service)?,
                is_past: false,
            }),
            RosterEvent::Exited { process } => {
                self.watched.remove(process);
                self.workloads.remove(process);
                None
            }
        }
    }

    /// A service is seen for the first time since the start: it is new, or goes on.
    fn follow_appearance(&mut self, id: ServiceId, time: TickTime) -> Option<ServeEvent> {
        let service = self.roster.service(id)?;
        let key = service.key.clone();
        let eldest = service.eldest();
        let read = |probe| ProgramStamp::read(probe, eldest?.pid);
        let met = self
            .boot
            .and_then(|boot| self.past.meet(&key, &service.members, boot));
        match met {
            None => {
                self.programs.insert(id, read(self.probe));
                Some(ServeEvent::Appeared(key))
            }
            Some(Continuation::Continued(kept)) => {
                // A file that was replaced since is not what its processes run.
                self.programs.insert(id, kept.program);
                None
            }
            Some(Continuation::Restarted(kept)) => {
                let stamp = read(self.probe);
                let deploy = is_deploy(kept.program.as_ref(), stamp.as_ref());
                self.programs.insert(id, stamp);
                let new = eldest?;
                Some(ServeEvent::Restarted {
                    service: key,
                    old: kept.process.pid,
                    new: new.pid,
                    deploy,
                    past: Some(began_at(new, time).max(self.past.moment()?.at)),
                })
            }
        }
    }

    /// What the history has to know, so that the next start can go on.
    pub(crate) fn running(&self, time: TickTime) -> Option<(ServingMoment, Vec<KeptService>)> {
        let moment = ServingMoment {
            at: time.at,
            boot: self.boot?,
            uptime: time.uptime.as_secs_f64(),
        };
        let running = self.roster.services();
        let running = running.filter_map(|(id, service)| {
            Some(KeptService {
                key: service.key.clone(),
                process: service.eldest().filter(|_| service.has_run())?,
                program: self.programs.get(&id).cloned().flatten(),
            })
        });
        Some((moment, running.collect()))
    }

    /// Begins and ends watches.
    fn choose(&mut self, now: f64) {
        let own = std::process::id();
        let mut urgent: HashMap<ProcKey, f64> = HashMap::new();
        for (key, process) in self.roster.processes().filter(|(key, _)| key.pid != own) {
            let urgency = process
                .track
                .and_then(|track| track.urgency(process.limits.soft, now));
            urgent.extend(urgency.map(|urgency| (key, urgency)));
        }
        let current: HashSet<ProcKey> = self.watched.keys().copied().collect();
        let change = watch_slots::plan(&current, &urgent, self.options.max_watched);
        for key in change.end {
            self.watched.remove(&key);
        }
        self.cost.unwatched = change.left_out;
        for key in change.begin {
            if !self.budget.has_some() {
                self.cost.deferred_looks += 1;
                self.cost.unwatched += 1;
                continue;
            }
            let cpu = own_cost::cpu_time();
            if let Some(watched) = ProcessWatch::begin(self.probe, key) {
                self.watched.insert(key, watched);
            }
            self.budget.spend(own_cost::cpu_time().saturating_sub(cpu));
        }
    }

    /// Looks at every watched process as closely as the budget allows, the changed ones first.
    fn look_at_all(&mut self, now: Duration) {
        let seconds = now.as_secs_f64();
        let mut wanted: Vec<(ProcKey, LookDepth, Option<u64>)> = Vec::new();
        for (key, watched) in &self.watched {
            let Some(process) = self.roster.process(*key) else {
                continue;
            };
            let depth = watched.wanted(seconds, process.has_changed);
            wanted.push((*key, depth, process.count));
        }
        // What changed matters more than a look that is merely due.
        let order = |depth: LookDepth| match depth {
            LookDepth::Changes => 0,
            LookDepth::Full => 1,
            LookDepth::Count => 2,
        };
        wanted.sort_by_key(|(key, depth, _)| (order(*depth), key.pid));
        self.troubles.clear();
        for (key, depth, count) in wanted {
            let depth = if self.budget.has_some() {
                depth
            } else {
                self.cost.deferred_looks += u64::from(depth != LookDepth::Count);
                LookDepth::Count
            };
            self.look(key, now, depth, count);
        }
    }

    fn look(&mut self, key: ProcKey, now: Duration, depth: LookDepth, count: Option<u64>) {
        let Some(watched) = self.watched.get_mut(&key) else {
            return;
        };
        let cpu = (depth != LookDepth::Count).then(own_cost::cpu_time);
        let looked = watched.look(now, depth, count);
        if let Some(cpu) = cpu {
            self.budget.spend(own_cost::cpu_time().saturating_sub(cpu));
        }
        match looked {
            Ok(()) => {}
            Err(Trouble::Ended) => {
                self.watched.remove(&key);
            }
            Err(Trouble::Denied) => {
                // It changed its user: from here on only its count is visible.
                let again = ProcessWatch::begin(self.probe, key);
                self.watched.remove(&key);
                self.watched.extend(again.map(|again| (key, again)));
            }
            Err(Trouble::Ours) => {
                let remedy = "raise fdguard's own limit (ulimit -n) or close files on the machine";
                let gap = Gap::new("some looks", "fdguard lacks descriptors or memory", remedy);
                if !self.troubles.contains(&gap) {
                    self.troubles.push(gap);
                }
            }
        }
    }

    /// Judges what has news, and moves findings on.
    fn judge_all(&mut self, now: f64, at: Timestamp) -> Vec<ServeEvent> {
        let mut changes = Vec::new();
        for (key, watched) in &mut self.watched {
            let Some(process) = self.roster.process(*key) else {
                continue;
            };
            let Some(service) = self.roster.service(process.service) else {
                continue;
            };
            if !watched.is_judgement_due(now) || !self.budget.has_some() {
                self.book.keep(&service.key, key.pid, now);
                continue;
            }
            let cpu = own_cost::cpu_time();
            watched.judge(&self.settings, now);
            self.budget.spend(own_cost::cpu_time().saturating_sub(cpu));
            let findings = watched.opinion.iter().flat_map(|opinion| &opinion.findings);
            for finding in findings {
                changes.extend(self.book.see(&service.key, finding, now, at));
            }
            self.book.settle(&service.key, key.pid, now);
        }
        changes.extend(self.book.advance(now, at));
        self.cost.dropped_findings = self.book.dropped();
        let event = |(change, id)| ServeEvent::Finding { change, id };
        changes.into_iter().map(event).collect()
    }

    fn overview(&mut self, view: &HostView, at: Timestamp) -> Overview {
        let now = self.budget.now().as_secs_f64();
        let mut open: HashMap<&ServiceKey, Vec<u64>> = HashMap::new();
        let records = self.book.records();
        for record in records
            .iter()
            .filter(|record| record.state == FindingState::Open)
        {
            open.entry(&record.key.service).or_default().push(record.id);
        }
        let services: Vec<(ServiceId, ServiceView)> = self
            .roster
            .services()
            // A service without processes is shown while a finding about it is open.
            .filter(|(_, service)| !service.members.is_empty() || open.contains_key(&service.key))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(id, service)| {
                let findings = open.remove(&service.key).unwrap_or_default();
                (id, self.service_view(service, findings))
            })
            .collect();
        for (id, service) in &services {
            if let Some(count) = service.open_fds {
                self.rates.entry(*id).or_default().observe(now, count);
            }
        }
        self.rates
            .retain(|id, _| self.roster.service(*id).is_some());
        self.programs
            .retain(|id, _| self.roster.service(*id).is_some());
        let with_rate = services.into_iter().map(|(id, mut service)| {
            service.growth_per_second = self.rates.get(&id).and_then(RateWindow::per_second);
            service
        });
        let mut services: Vec<ServiceView> = with_rate.collect();
        // Findings of an earlier start about services that do not run.
        services.extend(
            open.into_iter()
                .map(|(key, findings)| ended_service(key, findings, at)),
        );
        services.sort_by(|a, b| a.key.cmp(&b.key));
        own_cost::measure(&mut self.cost);
        let mut gaps = view.gaps.clone();
        gaps.extend(self.troubles.iter().cloned());
        gaps.extend(self.blind_gap());
        Overview {
            taken_at: at,
            processes: self.roster.processes().count() as u64,
            services,
            watched: self.watched_views(),
            findings: self.book.records().into_iter().cloned().collect(),
            own: self.cost.clone(),
            gaps,
            ..Overview::empty(
                self.options.host.clone(),
                self.options.every.as_secs_f64(),
                at,
            )
        }
    }

    fn service_view(&self, service: &RosterService, findings: Vec<u64>) -> ServiceView {
        let members = service.members.iter();
        let members: Vec<_> = members
            .filter_map(|key| self.roster.process(*key))
            .collect();
        let counts = members.iter().filter_map(|process| process.count);
        let ratio = |process: &&&crate::roster::RosterProcess| {
            let soft = process.limits.soft.filter(|soft| *soft > 0)?;
            Some((process.count? as f64 / soft as f64, process.limits))
        };
        let nearest = members.iter().filter_map(|process| ratio(&process));
        let nearest = nearest.max_by(|a, b| a.0.total_cmp(&b.0));
        let watched: Vec<&ProcessWatch<'_>> = service
            .members
            .iter()
            .filter_map(|key| self.watched.get(key))
            .collect();
        let opinions: Vec<_> = watched
            .iter()
            .filter_map(|one| one.opinion.as_ref())
            .collect();
        let targets = watched.iter().filter_map(|one| one.targets.as_ref());
        let targets: Vec<&TargetTallies> = targets.collect();
        let verdict = opinions.iter().map(|opinion| opinion.verdict).max();
        ServiceView {
            key: service.key.clone(),
            workload: self.workload_of(service),
            processes: members.len() as u64,
            watched: watched.len() as u64,
            open_fds: counts.reduce(|all, one| all + one),
            limit: nearest.and_then(|(_, limits)| limits.soft),
            hard_limit: nearest.and_then(|(_, limits)| limits.hard),
            select_limit: opinions
                .iter()
                .find_map(|one| process_watch::select_limit(one)),
            usage_ratio: nearest.map(|(ratio, _)| ratio),
            growth_per_second: None,
            verdict: verdict.unwrap_or(Verdict::Unknown),
            seconds_to_limit: nearest_times(
                opinions.iter().flat_map(|one| process_watch::times(one)),
            ),
            classes: sum_classes(
                opinions
                    .iter()
                    .filter_map(|one| process_watch::classes(one)),
            ),
            targets: TargetTallies::largest(&targets),
            findings,
            restarts: service.restarts,
            since: service.since,
        }
    }

    /// For services that have their name from a container or a pod.
    fn workload_of(&self, service: &RosterService) -> Option<Workload> {
        let is_named = matches!(service.key.kind, ServiceKind::Container | ServiceKind::Pod);
        let members = service.members.iter().filter(|_| is_named);
        common_workload(members.map(|key| self.workloads.get(key)?.as_ref()))
    }

    /// Every process, by number.
    pub(crate) fn processes(&self) -> Vec<ProcessView> {
        let mut views: Vec<ProcessView> = Vec::new();
        for (key, process) in self.roster.processes() {
            let Some(service) = self.roster.service(process.service) else {
                continue;
            };
            let watched = self.watched.get(&key);
            let opinion = watched.and_then(|watched| watched.opinion.as_ref());
            let verdict = opinion.map(|opinion| opinion.verdict);
            views.push(ProcessView {
                pid: key.pid,
                comm: process.comm.clone(),
                service: service.key.clone(),
                uid: process.uid,
                count: process.count,
                growth_per_second: process.rate.per_second(),
                limits: process.limits,
                verdict: verdict.unwrap_or(Verdict::Unknown),
                seconds_to_limit: opinion.map_or_else(Vec::new, process_watch::times),
                is_watched: watched.is_some(),
            });
        }
        views.sort_by_key(|view| view.pid);
        views
    }

    fn watched_views(&self) -> Vec<WatchedView> {
        let records = self.book.records();
        let open = records
            .iter()
            .filter(|record| record.state == FindingState::Open);
        let with_findings: HashSet<u32> = open.map(|record| record.finding.pid).collect();
        let mut views: Vec<WatchedView> = Vec::new();
        for (key, watched) in &self.watched {
            let Some(process) = self.roster.process(*key) else {
                continue;
            };
            let Some(service) = self.roster.service(process.service) else {
                continue;
            };
            let opinion = watched.opinion.as_ref();
            let verdict = opinion.map(|opinion| opinion.verdict);
            views.push(WatchedView {
                pid: key.pid,
                comm: process.comm.clone(),
                service: service.key.clone(),
                workload: self.workloads.get(key).cloned().flatten(),
                count: process.count,
                growth_per_second: process.rate.per_second(),
                limits: process.limits,
                verdict: verdict.unwrap_or(Verdict::Unknown),
                samples: watched.subject().timeline.looks(),
                listings: watched.listings,
                seconds_to_limit: opinion.map_or_else(Vec::new, process_watch::times),
                classes: opinion.and_then(process_watch::classes),
                has_findings: with_findings.contains(&key.pid),
            });
        }
        views.sort_by_key(|view| view.pid);
        views
    }

    /// Processes whose descriptors may not be listed.
    fn blind_gap(&self) -> Option<Gap> {
        let blind = self.watched.values();
        let blind = blind.filter(|one| one.subject().tier == fdguard_core::Tier::Radar);
        let count = blind.count();
        (count > 0).then(|| {
            Gap::new(
                format!("the classes of descriptors of {count} watched processes"),
                "they belong to other users, or are protected from tracing",
                "run fdguard serve as root, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
            )
        })
    }
}

/// A service with open findings and without processes.
fn ended_service(key: &ServiceKey, findings: Vec<u64>, at: Timestamp) -> ServiceView {
    ServiceView {
        key: key.clone(),
        workload: None,
        processes: 0,
        watched: 0,
        open_fds: None,
        limit: None,
        hard_limit: None,
        select_limit: None,
        usage_ratio: None,
        growth_per_second: None,
        verdict: Verdict::Unknown,
        seconds_to_limit: Vec::new(),
        classes: None,
        targets: None,
        findings,
        restarts: 0,
        since: at,
    }
}

fn is_deploy(before: Option<&ProgramStamp>, now: Option<&ProgramStamp>) -> Option<bool> {
    before?.is_replaced_by(now?)
}

/// When a process began, by the time of day.
fn began_at(process: ProcKey, time: TickTime) -> Timestamp {
    let age = time.uptime.as_secs_f64() - process.start_ticks as f64 / f64::from(TICKS_PER_SECOND);
    let age = SignedDuration::try_from_secs_f64(age.max(0.0)).unwrap_or_default();
    time.at.checked_sub(age).unwrap_or(time.at)
}

/// The shortest time to each limit.
fn nearest_times(times: impl Iterator<Item = LimitTime>) -> Vec<LimitTime> {
    let mut nearest: BTreeMap<String, f64> = BTreeMap::new();
    for time in times {
        let known = nearest.entry(time.limit).or_insert(time.seconds);
        *known = known.min(time.seconds);
    }
    let one = |(limit, seconds)| LimitTime { limit, seconds };
    nearest.into_iter().map(one).collect()
}

/// Classes of several processes together, largest first.
fn sum_classes(all: impl Iterator<Item = Vec<ClassTally>>) -> Option<Vec<ClassTally>> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let mut has_any = false;
    for classes in all {
        has_any = true;
        for class in classes {
            *sums.entry(class.class).or_insert(0) += class.count;
        }
    }
    let one = |(class, count)| ClassTally { class, count };
    let mut classes: Vec<ClassTally> = sums.into_iter().map(one).collect();
    classes.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.class.cmp(&b.class)));
    has_any.then_some(classes)
}
