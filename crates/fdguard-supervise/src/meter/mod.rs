//! Examines the processes of a service, as cheaply as its budgets allow.
//!
//! At rest, a look is one system call for each process: the size of its table. Names, limits and
//! the highest number are read when the count changed or periodically. Descriptors are listed only
//! in processes that hold so many that a level could be near, and their states and leaks are known
//! only there.

mod close;
mod connections;
mod cost;
mod files;
mod levels;
mod pace;
mod space;
mod trend;
mod zombies;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use fdguard_core::count::as_f64;
use fdguard_core::snapshot::Limits;
use fdguard_core::wall::FD_SETSIZE;
use fdguard_core::{Pid, RowKey, SelectUse};
use fdguard_probe::Probe;

use crate::budget::{Budget, HighestFd, Measure, Observation, ProcessReading, ServiceReading};
use crate::poll::Interest;
use close::{Candidate, Closely};
use files::{Files, Refusal};
use levels::{levels_of, lowest};
use pace::{Pace, Point};
use space::Memory;
use trend::Trend;

pub use close::{Leak, MOST_LISTED};
pub use pace::AT_REST;

/// Limits and names are read again this often.
const AROUND_EVERY: Duration = Duration::from_secs(5);
/// A close watch begins at this share of the first level, so that data exists when the level is
/// reached.
const CLOSE_FROM: f64 = 0.5;
/// Classes are examined from this share of their level on.
const CLASSES_FROM: f64 = 0.9;

/// Takes the readings of one service.
#[derive(Debug)]
pub struct Meter<'p> {
    probe: &'p Probe,
    budgets: Vec<Budget>,
    files: Files,
    began: Instant,
    next: Instant,
    /// The program, and when it was first seen.
    main: Option<(RowKey, Duration)>,
    members: Vec<Member>,
    pace: Pace,
    trend: Trend,
    close: Closely<'p>,
    memory: Memory,
    zombies: (Observation<u64>, Duration),
}

/// The state of a process.
#[derive(Clone, Debug)]
struct Member {
    key: RowKey,
    inode: u64,
    count: Observation<u64>,
    limits: Limits,
    highest: HighestFd,
    selects: Option<bool>,
    /// When limits and highest number are to be read again.
    around: Duration,
}

impl<'p> Meter<'p> {
    /// Measures what these budgets need. The first look is immediate.
    #[must_use]
    pub fn new(probe: &'p Probe, budgets: &[Budget], now: Instant) -> Self {
        Self {
            probe,
            budgets: budgets.to_vec(),
            files: Files::new(),
            began: now,
            next: now,
            main: None,
            members: Vec::new(),
            pace: Pace::default(),
            trend: Trend::default(),
            close: Closely::new(probe),
            memory: Memory::default(),
            zombies: (Observation::NotYet, Duration::ZERO),
        }
    }

    /// Registers the time of the next look.
    pub fn wants(&self, wants: &mut Interest<'_>) {
        wants.until(self.next);
    }

    /// Whether it is time for a look.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// Looks if it is time. `pids` are the processes of the service, the program itself first.
    pub fn poll(&mut self, now: Instant, pids: &[Pid]) -> Option<ServiceReading> {
        self.is_due(now).then(|| self.read(now, pids))
    }

    /// Takes one look.
    pub fn read(&mut self, now: Instant, pids: &[Pid]) -> ServiceReading {
        let at = now.saturating_duration_since(self.began);
        let members: Vec<Member> = pids
            .iter()
            .filter_map(|pid| self.member(at, *pid))
            .collect();
        self.members = members;
        let main = pids.first().copied().unwrap_or_default();
        self.follow(at, main);
        let candidates = self.candidates();
        self.close.read(at, &candidates);
        self.note_trend(at, main);
        let processes: Vec<ProcessReading> = self
            .members
            .iter()
            .map(|member| self.told(member))
            .collect();
        let alive: Vec<Pid> = processes.iter().map(|process| process.pid).collect();
        let reading = ServiceReading {
            at,
            main,
            children: alive.iter().filter(|pid| **pid != main).count() as u64,
            zombies: self.zombies(at, &alive),
            memory: self.memory_of(at, &alive),
            growth: self.trend.growth(),
            wall: self.trend.wall(at),
            processes,
        };
        self.next = now + self.pause(at, &reading);
        reading
    }

    /// What leaks, as far as the close watch knows; the largest first.
    #[must_use]
    pub fn leaks(&self) -> Vec<Leak> {
        self.close.leaks()
    }

    /// The current state of this process; absent if it has exited.
    fn member(&mut self, at: Duration, pid: Pid) -> Option<Member> {
        let (inode, count) = match self.files.table(pid) {
            Ok(found) => found,
            Err(Refusal::Gone) => return None,
            Err(refusal) => (0, Err(refusal)),
        };
        let known = self
            .members
            .iter()
            .find(|one| one.key.pid == pid && one.inode == inode && inode != 0);
        let mut member = match known.cloned() {
            Some(known) => known,
            None => self.newcomer(pid, inode)?,
        };
        // An exiting process also has an empty table.
        if count == Ok(0) && self.files.state(pid).map_or(true, |state| state.zombie) {
            return None;
        }
        let what = || format!("descriptor count of process {pid}");
        let count = count.map_or_else(
            |refusal| Observation::Hidden(refusal.gap(what())),
            Observation::Seen,
        );
        let moved = count != member.count;
        member.count = count;
        let beyond = member.count.seen().copied() > member.limits.soft;
        if at >= member.around || beyond {
            member.limits = self.files.limits(pid).unwrap_or(member.limits);
        }
        if moved || at >= member.around {
            self.find_highest(&mut member);
        }
        if at >= member.around {
            member.around = at + AROUND_EVERY;
        }
        Some(member)
    }

    fn newcomer(&mut self, pid: Pid, inode: u64) -> Option<Member> {
        let state = match self.files.state(pid) {
            Ok(state) if state.zombie => return None,
            Err(Refusal::Gone) => return None,
            state => state.ok(),
        };
        Some(Member {
            key: RowKey {
                pid,
                start_ticks: state.map(|state| state.start_ticks),
            },
            inode,
            count: Observation::NotYet,
            limits: Limits::default(),
            highest: HighestFd::NotAsked,
            selects: None,
            around: Duration::ZERO,
        })
    }

    /// The table size is precise enough until it exceeds a level.
    fn find_highest(&mut self, member: &mut Member) {
        let of = |budget: &&Budget| budget.what == Measure::Highest;
        let levels = self.budgets.iter().find(of);
        let Some(first) = levels.and_then(|budget| lowest(budget, Some(FD_SETSIZE))) else {
            return;
        };
        let hidden = |refusal: Refusal| match refusal {
            Refusal::Gone => HighestFd::NotAsked,
            other => HighestFd::Hidden(
                other.gap(format!("highest descriptor of process {}", member.key.pid)),
            ),
        };
        member.highest = match self.files.slots(member.key.pid) {
            Ok(Some(slots)) if as_f64(slots) <= first * CLASSES_FROM => {
                HighestFd::AtMost(slots - 1)
            }
            Ok(slots) => {
                if member.selects.is_none() {
                    member.selects = selects(self.probe, member.key.pid);
                }
                let highest = files::highest_of_program(member.key.pid, slots.unwrap_or(64));
                highest.map_or_else(hidden, HighestFd::Is)
            }
            Err(refusal) => hidden(refusal),
        };
    }

    /// Starts over when another program took its place.
    fn follow(&mut self, at: Duration, main: Pid) {
        let found = self.members.iter().find(|one| one.key.pid == main);
        let Some(found) = found.map(|one| one.key) else {
            return;
        };
        if self.main.is_none_or(|(key, _)| key != found) {
            self.main = Some((found, at));
            self.trend = Trend::default();
            self.pace = Pace::default();
            self.close.forget();
            self.memory = Memory::default();
        }
    }

    fn note_trend(&mut self, at: Duration, main: Pid) {
        let Some(member) = self.members.iter().find(|one| one.key.pid == main) else {
            return;
        };
        self.trend
            .observe(at, member.count.seen().copied(), member.limits);
        let asked = |budget: &Budget| matches!(budget.what, Measure::Growth | Measure::Wall);
        if self.budgets.iter().any(asked) {
            self.trend.judge(at, self.close.timeline(main));
        }
    }

    /// Processes with so many descriptors that a level may be near.
    fn candidates(&self) -> Vec<Candidate> {
        let near = |member: &Member, count: u64| {
            self.budgets.iter().any(|budget| {
                let part = match budget.what {
                    Measure::Fds => CLOSE_FROM,
                    Measure::Class(_) => CLASSES_FROM,
                    _ => return false,
                };
                let level = lowest(budget, member.limits.soft);
                level.is_some_and(|level| as_f64(count) >= level * part)
            })
        };
        let of = |member: &Member| {
            let count = *member.count.seen()?;
            near(member, count).then_some(Candidate {
                key: member.key,
                count,
                limits: member.limits,
            })
        };
        self.members.iter().filter_map(of).collect()
    }

    fn told(&self, member: &Member) -> ProcessReading {
        let classes = match self.close.classes(member.key.pid) {
            Some(classes) => Observation::Seen(classes),
            None => {
                let gap = self.close.gap(member.key.pid).cloned();
                gap.map_or(Observation::NotYet, Observation::Hidden)
            }
        };
        ProcessReading {
            pid: member.key.pid,
            start_ticks: member.key.start_ticks,
            count: member.count.clone(),
            limits: member.limits,
            highest: member.highest.clone(),
            selects: member.selects,
            classes,
        }
    }

    fn memory_of(&mut self, at: Duration, alive: &[Pid]) -> Observation<crate::budget::MemoryUse> {
        let mut budgets = self
            .budgets
            .iter()
            .filter(|budget| budget.what == Measure::Memory);
        match budgets.next().and_then(|budget| lowest(budget, None)) {
            Some(level) => self.memory.measure(&mut self.files, at, alive, level),
            None => Observation::NotYet,
        }
    }

    fn zombies(&mut self, at: Duration, alive: &[Pid]) -> Observation<u64> {
        let asked = self
            .budgets
            .iter()
            .any(|budget| budget.what == Measure::Zombies);
        if asked && at >= self.zombies.1 {
            let seen = zombies::count(&mut self.files, alive);
            self.zombies = (seen, at + AROUND_EVERY);
        }
        self.zombies.0.clone()
    }

    fn pause(&mut self, at: Duration, reading: &ServiceReading) -> Duration {
        let count = |one: &ProcessReading| {
            let value = *one.count.seen()?;
            Some(Point {
                pid: one.pid,
                value,
            })
        };
        let points: Vec<Point> = reading.processes.iter().filter_map(count).collect();
        let fds = self
            .budgets
            .iter()
            .find(|budget| budget.what == Measure::Fds);
        let levels = |pid: Pid| {
            let of = reading.processes.iter().find(|one| one.pid == pid);
            fds.zip(of)
                .map_or_else(Vec::new, |(fds, of)| levels_of(fds, of.limits.soft))
        };
        let age = self
            .main
            .map_or(Duration::ZERO, |(_, since)| at.saturating_sub(since));
        self.pace.after(at, age, &points, levels)
    }
}

/// Whether it can call `select()`; absent if unknown.
fn selects(probe: &Probe, pid: Pid) -> Option<bool> {
    match probe.select_use(pid).ok()? {
        SelectUse::Imports { .. } => Some(true),
        SelectUse::Absent => Some(false),
        SelectUse::Unknown { .. } => None,
    }
}
