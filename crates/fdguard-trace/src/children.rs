//! The children of traced processes: starts and waits from the rings, their current state from
//! `/proc`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use fdguard_core::blame;
use fdguard_core::children::finding::{ChildPile, is_same_line};
use fdguard_core::children::{ChildSite, ChildStart, ChildState, Children, arrival};
use fdguard_core::dependency_path::through;
use fdguard_core::event::{StackId, Tid};
use fdguard_core::origin::{Origin, Stack};
use fdguard_core::{Text, TraceKey};
use fdguard_proc::process::stat;
use fdguard_proc::stat::ProcStat;
use fdguard_wire::{EventKind, EventRecord};

use crate::BlindReason;
use crate::observed_trace::{UntracedProgram, is_alive};

/// How often to check the state of children, in nanoseconds.
const EVERY: u64 = 250_000_000;
/// This many children double the interval between checks.
const MANY: u64 = 512;
/// The most programs that are remembered, and processes that became one without the library.
const MOST: usize = 1024;
/// The most ancestors that are searched for a line.
const GENERATIONS: usize = 16;

/// Follows the children of every process of a trace.
#[derive(Debug, Default)]
pub(crate) struct ChildWatch {
    children: Children,
    /// When each process began, from the first of its mappings, which is closest to its start.
    began: HashMap<u32, u64>,
    /// Processes that were forked and are not known to have become another program.
    forked: HashSet<u32>,
    /// Files whose programs load the library.
    programs: HashSet<PathBuf>,
    /// Children that became a program without the library.
    became: BTreeMap<u32, UntracedProgram>,
    looked: u64,
    /// The time until the next check.
    pause: u64,
}

impl ChildWatch {
    /// Applies the events of a process that concern children, and the times of the others.
    pub(crate) fn apply_events(
        &mut self,
        process: TraceKey,
        (began, is_forked): (u64, bool),
        events: &[EventRecord],
        number: impl Fn(u32) -> StackId,
    ) {
        self.children.add_process(process, began);
        self.began.entry(process.pid).or_insert(began);
        if is_forked {
            self.forked.insert(process.pid);
        } else {
            self.forked.remove(&process.pid);
        }
        for event in events {
            let [pid, since] = event.more;
            let start = ChildStart {
                parent: process,
                thread: event.tid,
                at: event.ns,
                stack: (event.stack != 0).then(|| number(event.stack)),
            };
            match (event.kind, u32::try_from(pid)) {
                (EventKind::Started, Ok(0)) => self.children.add_start_within(since, start),
                (EventKind::Started, Ok(pid)) => self.children.add_start(pid, start),
                (EventKind::Reaped, Ok(pid)) => self.children.add_wait(process, pid, event.ns),
                _ => self.children.note_activity(process, event.ns),
            }
        }
    }

    /// Checks the state of the children that were not waited for, if it is time.
    pub(crate) fn poll(&mut self, now: u64) {
        if now.saturating_sub(self.looked) >= self.pause {
            self.poll_now(now);
        }
    }

    /// The same, immediately.
    pub(crate) fn poll_now(&mut self, now: u64) {
        self.looked = now;
        let unwaited = self.children.unwaited();
        let many: usize = unwaited.iter().map(|(_, pids)| pids.len()).sum();
        // Thousands of children take a while, and reading the rings must not wait for that.
        self.pause = EVERY * (1 + many as u64 / MANY);
        for (parent, pids) in unwaited {
            let exe = exe_of(parent.pid);
            for pid in &pids {
                self.note_program(*pid, exe.as_deref());
            }
            let seen: Vec<(u32, ChildState)> = pids
                .into_iter()
                .map(|pid| (pid, self.state_of(pid, parent.pid, exe.as_deref())))
                .collect();
            // If the parent ended meanwhile, its children have another one: then nothing of this
            // counts.
            if is_alive(parent.pid) {
                for (pid, state) in seen {
                    self.children.see(parent, pid, state, now);
                }
            }
        }
        self.children.review(now);
    }

    /// Children that became a program without the library, as far as they were running at a check.
    pub(crate) fn became(&self) -> &BTreeMap<u32, UntracedProgram> {
        &self.became
    }

    /// Notes which program a child became. A short-lived one may end before the first check.
    fn note_program(&mut self, pid: u32, parent: Option<&Path>) {
        let exe = exe_of(pid);
        let Some(exe) = exe.filter(|exe| Some(exe.as_path()) != parent) else {
            return;
        };
        let is_full = self.became.len() >= MOST;
        if self.programs.contains(&exe) || is_full || self.became.contains_key(&pid) {
            return;
        }
        let became = UntracedProgram::from_pid(pid);
        // Nothing was read of a process that ended meanwhile.
        if exe_of(pid).as_ref() != Some(&exe) {
            return;
        }
        if became.blind != BlindReason::NotLoaded {
            self.became.insert(pid, became);
        } else if self.programs.len() < MOST {
            self.programs.insert(exe);
        }
    }

    /// A process is gone.
    pub(crate) fn end(&mut self, process: TraceKey, now: u64) {
        self.children.end(process, now);
        self.forked.remove(&process.pid);
    }

    /// The current state of a child, from `/proc`. One with another parent does not count as a
    /// child any more.
    fn state_of(&self, pid: u32, parent: u32, exe: Option<&Path>) -> ChildState {
        let state = stat(pid, |stat| child_state(stat, parent));
        match state.ok().flatten() {
            Some(ChildState::Running(name))
                if self.forked.contains(&pid) && exe.is_some() && exe_of(pid).as_deref() == exe =>
            {
                ChildState::Serving(name)
            }
            state => state.unwrap_or(ChildState::Gone),
        }
    }

    /// The lines that repeatedly start children without waiting for them.
    pub(crate) fn piles(&self, name: impl FnMut(StackId) -> Stack) -> Vec<ChildPile> {
        let piles = self.children.piles().into_iter().cloned().collect();
        let lines = by_line(piles, name).into_iter().map(|(pile, _)| pile);
        // What a shell or another installed program starts is not for its user to repair.
        lines
            .filter(|pile| blame::is_programs(&pile.origin.stack))
            .collect()
    }

    /// Every line that started children, with the start times of those that were not waited for so
    /// far.
    pub(crate) fn lines(
        &self,
        now: u64,
        name: impl FnMut(StackId) -> Stack,
    ) -> Vec<(ChildPile, Vec<u64>)> {
        by_line(self.children.sites(now), name)
    }

    /// The line that started a process: that of its starter, or of the nearest ancestor with a line
    /// in the program's own code.
    pub(crate) fn origin(
        &self,
        pid: u32,
        mut name: impl FnMut(StackId) -> Stack,
    ) -> Option<Origin> {
        let mut nearest = None;
        let mut at = pid;
        for _ in 0..GENERATIONS {
            let Some(start) = self.start(at) else {
                break;
            };
            let stack = start.stack.map(&mut name).unwrap_or_default();
            let is_own = blame::is_programs(&stack);
            let origin = origin(stack, (Some(start.thread), 1, 1, 0), None);
            if is_own {
                return Some(origin);
            }
            nearest.get_or_insert(origin);
            at = start.parent.pid;
        }
        // A line outside the program's own code is better than none, if it is a line.
        nearest.filter(|origin| {
            let culprit = origin.culprit.as_ref();
            culprit.is_some_and(|culprit| culprit.line.is_some())
        })
    }

    fn start(&self, pid: u32) -> Option<&ChildStart> {
        let known = self.children.start_of(pid);
        let began = self.began.get(&pid);
        known.or_else(|| self.children.start_around(*began?))
    }
}

/// Named sites, merged by line.
fn by_line(
    sites: Vec<ChildSite>,
    mut name: impl FnMut(StackId) -> Stack,
) -> Vec<(ChildPile, Vec<u64>)> {
    let mut lines: Vec<(ChildPile, Vec<u64>)> = Vec::new();
    for site in sites {
        let stack = site.stack.map(&mut name).unwrap_or_default();
        let pile = pile(&site, stack);
        match lines.iter_mut().find(|(one, _)| is_same(one, &pile)) {
            Some((known, starts)) => {
                absorb(known, &pile);
                starts.extend(site.starts);
            }
            None => lines.push((pile, site.starts)),
        }
    }
    lines
}

fn exe_of(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The state of a child of this parent; `None` if it has another one.
fn child_state(stat: &ProcStat<'_>, parent: u32) -> Option<ChildState> {
    (stat.ppid == parent).then(|| {
        if stat.is_zombie() {
            ChildState::Zombie
        } else {
            ChildState::Running(Text::from(stat.comm))
        }
    })
}

fn pile(site: &ChildSite, stack: Stack) -> ChildPile {
    let (first, last) = (site.births.first(), site.births.last());
    let name = site.names.iter().max_by_key(|(_, count)| **count);
    let began = site.parent.began;
    let age = first.map(|first| arrival::seconds(site.at.saturating_sub(began)) - first);
    let counts = (site.thread, site.left(), site.started, site.waited);
    ChildPile {
        pid: site.parent.pid,
        name: name.map(|(name, _)| name.clone()),
        started: site.started,
        waited: site.waited,
        running: site.running,
        zombies: site.zombies,
        came: first.zip(last).map_or(0.0, |(first, last)| last - first),
        per_cycle: None,
        origin: origin(stack, counts, age),
    }
}

/// Thread; how many are left, were started, were waited for; and the age of the oldest.
fn origin(stack: Stack, counts: (Option<Tid>, u64, u64, u64), age: Option<f64>) -> Origin {
    let (thread, live, opened, closed) = counts;
    Origin {
        culprit: blame::blamed(&stack),
        leaking_caller: None,
        through: through(&stack),
        partly: false,
        stack,
        thread,
        live,
        opened,
        closed,
        oldest_age_seconds: age.map(|age| (age * 1000.0).round() / 1000.0),
    }
}

fn is_same(one: &ChildPile, other: &ChildPile) -> bool {
    let lines = one
        .origin
        .culprit
        .as_ref()
        .zip(other.origin.culprit.as_ref());
    one.pid == other.pid && lines.is_some_and(|(one, other)| is_same_line(one, other))
}

/// Merges two call paths of one line.
fn absorb(pile: &mut ChildPile, other: &ChildPile) {
    pile.started += other.started;
    pile.waited += other.waited;
    pile.running += other.running;
    pile.zombies += other.zombies;
    pile.came = pile.came.max(other.came);
    pile.origin.live += other.origin.live;
    pile.origin.opened += other.origin.opened;
    pile.origin.closed += other.origin.closed;
}

#[cfg(test)]
mod tests {
    use fdguard_core::children::ChildState;

    use super::{ProcStat, child_state};

    #[test]
    fn a_child_is_what_its_state_says_and_gone_when_it_has_another_parent() {
        let state = |letter: &str, parent| {
            let line =
                format!("12 (my (odd) job) {letter} 7 12 12 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 9");
            child_state(&ProcStat::parse(line.as_bytes()).unwrap(), parent)
        };
        let running = Some(ChildState::Running("my (odd) job".into()));
        assert_eq!(state("S", 7), running);
        assert_eq!(state("S", 1), None);
        assert_eq!(state("Z", 7), Some(ChildState::Zombie));
    }
}
