//! Child processes as a resource: where they are started, and whether the parent waits for them.
//!
//! A tracer reports starts and waits, and what it sees of the children meanwhile. [`Children`]
//! keeps the account of each process and call path, [`arrival`] judges whether a path keeps
//! starting children without waiting for them, and [`finding`] words it. Times are nanoseconds of
//! the monotonic clock. Decision 053.

pub mod arrival;
pub mod finding;
mod levels;

use std::collections::{BTreeMap, HashMap};

use crate::event::{StackId, Tid};
use crate::{Pid, Text, TraceKey};
use arrival::EndedLives;
use levels::Levels;

/// A wait may be reported before its start: the child exited before its parent returned.
const FASTER: u64 = 1_000_000_000;
/// The most starts that are remembered; those of ended children are forgotten first.
const MOST_STARTS: usize = 1 << 16;
/// The most ended children that are remembered until their wait is reported, and the most waits
/// until their start is.
const MOST_GONE: usize = 1024;
/// A pile that its process cleans up while exiting still counts if it was judged one within these
/// last nanoseconds, or the last part of the process's life.
const LAST: u64 = 2_000_000_000;
const LAST_PART: u64 = 10;

/// Where a child was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildStart {
    /// The parent.
    pub parent: TraceKey,
    /// The thread that started it.
    pub thread: Tid,
    /// When.
    pub at: u64,
    /// The call stack; absent where none was taken.
    pub stack: Option<StackId>,
}

/// The state of a child that was not waited for yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// It runs, under this name by now.
    Running(Text),
    /// It runs its parent's program: a forked worker, such as one per client.
    Serving(Text),
    /// It has ended.
    Zombie,
    /// The child no longer exists: the kernel collected it, or an unreported wait did.
    Gone,
}

/// The children that one call path of a process started.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildSite {
    /// The process.
    pub parent: TraceKey,
    /// The call path.
    pub stack: Option<StackId>,
    /// The thread that started the oldest of those left.
    pub thread: Option<Tid>,
    /// How many it started.
    pub started: u64,
    /// How many of them were waited for.
    pub waited: u64,
    /// How many of them run.
    pub running: u64,
    /// How many of them have ended and were not waited for.
    pub zombies: u64,
    /// The names of those left, and how many of each.
    pub names: BTreeMap<Text, u64>,
    /// When those left were started, in seconds since the process began, the oldest first.
    pub births: Vec<f64>,
    /// The same by the monotonic clock.
    pub starts: Vec<u64>,
    /// When this was true, by the monotonic clock.
    pub at: u64,
}

impl ChildSite {
    /// How many are left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.running + self.zombies
    }
}

/// The children of every process of a trace.
#[derive(Debug, Default)]
pub struct Children {
    parents: BTreeMap<TraceKey, Parent>,
    starts: HashMap<Pid, ChildStart>,
    /// Calls that started a child and waited for it without reporting which: when each began, and
    /// the start.
    within: Vec<(u64, ChildStart)>,
}

#[derive(Debug, Default)]
struct Parent {
    began: u64,
    /// When it last reported anything.
    active: u64,
    over: Option<u64>,
    living: BTreeMap<Pid, Child>,
    paths: BTreeMap<Option<StackId>, Path>,
    /// Waits for children whose start was not reported yet.
    early: BTreeMap<Pid, u64>,
    /// Children seen to be gone before their wait, if any, was reported.
    gone: BTreeMap<Pid, Option<StackId>>,
    /// The last pile of each path.
    piles: BTreeMap<Option<StackId>, ChildSite>,
    reviewed: u64,
}

#[derive(Debug)]
struct Child {
    start: ChildStart,
    is_zombie: bool,
    is_serving: bool,
    name: Option<Text>,
}

impl Child {
    /// Whether it counts: a serving child may have a client.
    fn counts(&self, which: Which) -> bool {
        which == Which::All || self.is_zombie || !self.is_serving
    }
}

/// Which children of a call path are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    All,
    /// All except those that run their parent's program.
    Others,
}

/// The account of one call path.
#[derive(Debug, Default)]
struct Path {
    started: u64,
    waited: u64,
    living: u64,
    ended: EndedLives,
    levels: Levels,
}

impl Children {
    /// Adds a process that reports events, and when it began.
    pub fn add_process(&mut self, process: TraceKey, began: u64) {
        self.parents.entry(process).or_insert_with(|| Parent {
            began,
            active: began,
            ..Parent::default()
        });
    }

    /// A process reported something.
    pub fn note_activity(&mut self, process: TraceKey, at: u64) {
        if let Some(parent) = self.parents.get_mut(&process) {
            parent.active = parent.active.max(at);
        }
    }

    /// A child was started.
    pub fn add_start(&mut self, pid: Pid, start: ChildStart) {
        let Some(parent) = self.parents.get_mut(&start.parent) else {
            return;
        };
        if self.starts.len() >= MOST_STARTS {
            let living: Vec<Pid> = parent.living.keys().copied().collect();
            self.starts.retain(|pid, _| living.contains(pid));
        }
        self.starts.insert(pid, start);
        parent.gone.remove(&pid);
        parent.active = parent.active.max(start.at);
        // A reused number is another child: the end of the first was not seen.
        parent.remove(pid, start.at, false);
        let path = parent.paths.entry(start.stack).or_default();
        path.started += 1;
        path.living += 1;
        path.levels
            .note(start.at.saturating_sub(parent.began), path.living);
        parent.living.insert(
            pid,
            Child {
                start,
                is_zombie: false,
                is_serving: false,
                name: None,
            },
        );
        let early = parent.early.remove(&pid);
        if early.is_some_and(|at| start.at.saturating_sub(at) < FASTER) {
            parent.remove(pid, start.at, true);
        }
    }

    /// A call that began at `since` started a child and waited for it.
    pub fn add_start_within(&mut self, since: u64, start: ChildStart) {
        if let Some(parent) = self.parents.get_mut(&start.parent) {
            parent.active = parent.active.max(start.at);
            let path = parent.paths.entry(start.stack).or_default();
            path.started += 1;
            path.waited += 1;
            if self.within.len() >= MOST_STARTS {
                self.within.clear();
            }
            self.within.push((since, start));
        }
    }

    /// A process waited for a child that had ended.
    pub fn add_wait(&mut self, process: TraceKey, pid: Pid, at: u64) {
        // A program that called exec still has its earlier children.
        let same = |key: &&TraceKey| key.pid == process.pid;
        let keys: Vec<TraceKey> = self.parents.keys().filter(same).copied().collect();
        let has_it = |key: &TraceKey| self.parents[key].living.contains_key(&pid);
        let owner = keys.into_iter().rev().find(has_it).unwrap_or(process);
        let Some(parent) = self.parents.get_mut(&owner) else {
            return;
        };
        parent.active = parent.active.max(at);
        parent.review_before(owner, pid, at);
        if parent.remove(pid, at, true) {
            return;
        }
        match parent.gone.remove(&pid) {
            Some(stack) => {
                let path = parent.paths.entry(stack).or_default();
                path.waited += 1;
            }
            None => {
                if parent.early.len() >= MOST_GONE {
                    parent.early.clear();
                }
                parent.early.insert(pid, at);
            }
        }
    }

    /// The children that each process has not waited for; exited processes have none.
    pub fn unwaited(&self) -> Vec<(TraceKey, Vec<Pid>)> {
        let running = self.parents.iter().filter(|(_, one)| one.over.is_none());
        running
            .filter(|(_, one)| !one.living.is_empty())
            .map(|(key, one)| (*key, one.living.keys().copied().collect()))
            .collect()
    }

    /// What was seen of a child while its parent ran.
    pub fn see(&mut self, process: TraceKey, pid: Pid, state: ChildState, at: u64) {
        let Some(parent) = self.parents.get_mut(&process) else {
            return;
        };
        if state == ChildState::Gone {
            let stack = parent.living.get(&pid).map(|child| child.start.stack);
            parent.review_before(process, pid, at);
            parent.remove(pid, at, false);
            if parent.gone.len() >= MOST_GONE {
                parent.gone.clear();
            }
            parent.gone.extend(stack.map(|stack| (pid, stack)));
        } else if let Some(child) = parent.living.get_mut(&pid) {
            match state {
                ChildState::Running(name) => {
                    child.is_serving = false;
                    child.name = Some(name);
                }
                ChildState::Serving(name) => {
                    child.is_serving = true;
                    child.name = Some(name);
                }
                _ => child.is_zombie = true,
            }
        }
    }

    /// Judges every path as it is now, and remembers the piles.
    pub fn review(&mut self, now: u64) {
        for (key, parent) in &mut self.parents {
            if parent.over.is_none() {
                parent.review(*key, now);
            }
        }
    }

    /// A process has exited: what its children do from now on is not its fault.
    pub fn end(&mut self, process: TraceKey, now: u64) {
        if let Some(parent) = self.parents.get_mut(&process)
            && parent.over.is_none()
        {
            let before = parent.piles.clone();
            parent.review(process, now);
            // Piles that the exit has already cleaned up count as they were.
            for (stack, pile) in before {
                let is_recent = now.saturating_sub(pile.at) < LAST;
                let known = parent.piles.get(&stack);
                if is_recent && known.is_some_and(|one| one.left() < pile.left()) {
                    parent.piles.insert(stack, pile);
                }
            }
            parent.over = Some(now);
            // Most processes of a build start no children.
            if parent.paths.is_empty() {
                self.parents.remove(&process);
            }
        }
    }

    /// The call paths that keep starting children without waiting for them. Those of an exited
    /// process count as they were when it exited, or shortly before, because an exiting program may
    /// clean up.
    #[must_use]
    pub fn piles(&self) -> Vec<&ChildSite> {
        let of_parent = |parent: &'_ Parent| {
            let end = parent.over.unwrap_or(parent.reviewed);
            let last = match parent.over {
                None => 0,
                Some(over) => LAST + over.saturating_sub(parent.began) / LAST_PART,
            };
            end.saturating_sub(last)
        };
        let all = self.parents.values();
        all.flat_map(|parent| {
            let since = of_parent(parent);
            parent.piles.values().filter(move |pile| pile.at >= since)
        })
        .collect()
    }

    /// Every call path that started a child, as it is now.
    #[must_use]
    pub fn sites(&self, now: u64) -> Vec<ChildSite> {
        let all = self.parents.iter();
        all.flat_map(|(key, parent)| {
            let paths = parent.paths.keys();
            paths.map(|stack| parent.site(*key, *stack, now, Which::All))
        })
        .collect()
    }

    /// Where a process was started.
    #[must_use]
    pub fn start_of(&self, pid: Pid) -> Option<&ChildStart> {
        self.starts.get(&pid)
    }

    /// The call that was starting and waiting for a child at this time, if there was exactly one.
    #[must_use]
    pub fn start_around(&self, at: u64) -> Option<&ChildStart> {
        let mut around = self
            .within
            .iter()
            .filter(|(since, start)| (*since..=start.at).contains(&at))
            .map(|(_, start)| start);
        let first = around.next()?;
        let is_only = around.all(|one| (one.parent, one.stack) == (first.parent, first.stack));
        is_only.then_some(first)
    }
}

impl Parent {
    /// Removes a child; returns whether it was there.
    fn remove(&mut self, pid: Pid, at: u64, was_waited_for: bool) -> bool {
        let Some(child) = self.living.remove(&pid) else {
            return false;
        };
        if let Some(path) = self.paths.get_mut(&child.start.stack) {
            path.living = path.living.saturating_sub(1);
            path.waited += u64::from(was_waited_for);
            path.ended.add(at.saturating_sub(child.start.at));
            path.levels.note(at.saturating_sub(self.began), path.living);
        }
        true
    }

    /// Judges once more before a pile shrinks: more may have started since the last time.
    fn review_before(&mut self, key: TraceKey, pid: Pid, now: u64) {
        let stack = self.living.get(&pid).map(|child| child.start.stack);
        let path = stack.and_then(|stack| self.paths.get(&stack));
        let pile = stack.and_then(|stack| self.piles.get(&stack));
        if path
            .zip(pile)
            .is_some_and(|(path, pile)| path.living > pile.left())
        {
            self.review(key, now);
        }
    }

    fn review(&mut self, key: TraceKey, now: u64) {
        self.reviewed = now;
        let paths: Vec<Option<StackId>> = self.paths.keys().copied().collect();
        for stack in paths {
            let few = self.paths[&stack].living < arrival::LEAST as u64;
            if few {
                continue;
            }
            let site = self.site(key, stack, now, Which::Others);
            if self.is_pile(&site) {
                self.piles.insert(stack, site);
            }
        }
    }

    fn is_pile(&self, site: &ChildSite) -> bool {
        let Some(path) = self.paths.get(&site.stack) else {
            return false;
        };
        let course = arrival::ChildHistory {
            // Idle time is not evidence: only time in which the process was active counts.
            until: arrival::seconds(self.active.saturating_sub(self.began)),
            births: &site.births,
            ended: path.ended,
        };
        let first = site.births.first().copied().unwrap_or(0.0);
        let half = first + (course.until - first) / 2.0;
        arrival::piles_up(&course, path.levels.most_until(half), site.left())
    }

    fn site(&self, parent: TraceKey, stack: Option<StackId>, now: u64, which: Which) -> ChildSite {
        let path = self.paths.get(&stack);
        let left: Vec<&Child> = self
            .living
            .values()
            .filter(|child| child.start.stack == stack && child.counts(which))
            .collect();
        let mut starts: Vec<u64> = left.iter().map(|child| child.start.at).collect();
        starts.sort_unstable();
        let since = |at: &u64| arrival::seconds(at.saturating_sub(self.began));
        let mut names = BTreeMap::new();
        for name in left.iter().filter_map(|child| child.name.clone()) {
            *names.entry(name).or_default() += 1;
        }
        let zombies = left.iter().filter(|child| child.is_zombie).count() as u64;
        let oldest = left.iter().min_by_key(|child| child.start.at);
        ChildSite {
            parent,
            stack,
            thread: oldest.map(|child| child.start.thread),
            started: path.map_or(0, |path| path.started),
            waited: path.map_or(0, |path| path.waited),
            running: left.len() as u64 - zombies,
            zombies,
            names,
            births: starts.iter().map(since).collect(),
            starts,
            at: now,
        }
    }
}

#[cfg(test)]
mod tests;
