//! Lists the descriptors of the few processes that hold most: their classes, and which of them stay
//! open.

use std::collections::BTreeMap;
use std::time::Duration;

use fdguard_core::count::as_f64;
use fdguard_core::snapshot::Limits;
use fdguard_core::timeline::Look;
use fdguard_core::units::counted;
use fdguard_core::{Class, Gap, Pid, RowKey, Text, Tier, Timeline};
use fdguard_probe::{Error, Probe, ProcessWatcher};

use super::cost::Cost;
use super::trend;

/// The most processes under close watch: each takes three of fdguard's descriptors, and memory for
/// each of its own.
const MOST: usize = 4;
/// More descriptors than this are counted and not listed: a first list takes about 12 µs each
/// (9,500: 0.12 s of processor time), during which the loop does nothing else.
pub const MOST_LISTED: u64 = 5_000;
/// Listing may take this share of the time: one in two hundred.
const LIST_SHARE: u32 = 200;
/// How many known descriptors are read again with each list.
const AGAIN: usize = 256;
/// A connection becomes `CLOSE_WAIT` without a change in the count: read again this often, whatever
/// the count is.
const AGAIN_EVERY: Duration = Duration::from_secs(5);
/// A smaller group of descriptors is not named as a suspect.
const LEAST_SUSPECT: u64 = 5;
/// The most suspects that are named.
const SUSPECTS: usize = 5;

/// Descriptors that leak, or may leak.
#[derive(Clone, Debug, PartialEq)]
pub struct Leak {
    /// The process.
    pub pid: Pid,
    /// Its class; absent if unknown.
    pub class: Option<Class>,
    /// What they refer to, numbers collapsed.
    pub target: Option<Text>,
    /// How many there are.
    pub count: u64,
    /// The growth per minute.
    pub per_minute: Option<f64>,
    /// Whether it is judged a leak: otherwise it was opened since the close watch began and is
    /// still open.
    pub proven: bool,
}

/// The processes under close watch.
#[derive(Debug)]
pub(super) struct Closely<'p> {
    probe: &'p Probe,
    watched: Vec<Close<'p>>,
    /// Those that cannot be watched closely, and why.
    hidden: Vec<(Pid, Gap)>,
}

#[derive(Debug)]
struct Close<'p> {
    key: RowKey,
    watcher: ProcessWatcher<'p>,
    timeline: Timeline,
    list: Duration,
    again: Duration,
}

/// A process that may need a close watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) key: RowKey,
    pub(super) count: u64,
    pub(super) limits: Limits,
}

impl<'p> Closely<'p> {
    pub(super) fn new(probe: &'p Probe) -> Self {
        Self {
            probe,
            watched: Vec::new(),
            hidden: Vec::new(),
        }
    }

    pub(super) fn forget(&mut self) {
        self.watched.clear();
        self.hidden.clear();
    }

    /// Examines these, or those that hold most if there are too many; others are dropped.
    pub(super) fn read(&mut self, now: Duration, candidates: &[Candidate]) {
        let mut chosen = candidates.to_vec();
        chosen.sort_by_key(|one| std::cmp::Reverse(one.count));
        chosen.truncate(MOST);
        let is = |one: &Close<'_>, other: &Candidate| one.key == other.key;
        self.watched
            .retain(|one| chosen.iter().any(|other| is(one, other)));
        self.hidden
            .retain(|(pid, _)| chosen.iter().any(|other| other.key.pid == *pid));
        for candidate in &chosen {
            let known = self.watched.iter().position(|one| is(one, candidate));
            let Some(at) = known.or_else(|| self.start(candidate)) else {
                continue;
            };
            if let Err(error) = self.watched[at].look(now, candidate) {
                let gone = self.watched.remove(at);
                self.hide(gone.key.pid, &error);
            }
        }
    }

    /// Its index among the watched, if it may be watched.
    fn start(&mut self, candidate: &Candidate) -> Option<usize> {
        if self.hidden.iter().any(|(pid, _)| *pid == candidate.key.pid) {
            return None;
        }
        let pid = candidate.key.pid;
        if candidate.count > MOST_LISTED {
            let descriptors = counted(candidate.count, "descriptor");
            let what = format!("classes of the {descriptors} of process {pid}");
            let why = format!("above {MOST_LISTED} descriptors, fdguard run only counts them");
            self.hidden.push((
                pid,
                Gap::new(what, why, "run fdguard snap PID to list them"),
            ));
            return None;
        }
        match ProcessWatcher::new(self.probe, pid) {
            Ok(watcher) if watcher.tier() == Tier::Full => self.watched.push(Close {
                key: candidate.key,
                watcher,
                timeline: Timeline::new(),
                list: Duration::ZERO,
                again: Duration::ZERO,
            }),
            Ok(watcher) => {
                let gaps = watcher.gaps().into_iter();
                self.hidden.extend(gaps.map(|gap| (pid, gap)));
                return None;
            }
            Err(error) => {
                self.hide(pid, &error);
                return None;
            }
        }
        self.watched.len().checked_sub(1)
    }

    fn hide(&mut self, pid: Pid, error: &Error) {
        if matches!(
            error,
            Error::Vanished(_) | Error::NoSuchProcess(_) | Error::Zombie { .. }
        ) {
            return;
        }
        let what = format!("descriptor classes of process {pid}");
        let remedy =
            "run fdguard snap PID for details; a full descriptor table is usually temporary";
        self.hidden
            .push((pid, Gap::new(what, error.to_string(), remedy)));
    }

    /// Why this process is not watched although it should be.
    pub(super) fn gap(&self, pid: Pid) -> Option<&Gap> {
        let hidden = self.hidden.iter();
        hidden
            .filter(|(one, _)| *one == pid)
            .map(|(_, gap)| gap)
            .next()
    }

    /// Its descriptors over time; absent before the first list.
    pub(super) fn timeline(&self, pid: Pid) -> Option<&Timeline> {
        let one = self.watched.iter().find(|one| one.key.pid == pid)?;
        Some(&one.timeline).filter(|timeline| timeline.is_listed())
    }

    /// How many there are of each class.
    pub(super) fn classes(&self, pid: Pid) -> Option<Vec<(Class, u64)>> {
        let timeline = self.timeline(pid)?;
        let mut counts = BTreeMap::new();
        for (_, held) in timeline.live().iter() {
            *counts.entry(held.class.clone()).or_insert(0) += 1;
        }
        Some(counts.into_iter().collect())
    }

    /// What leaks in all of them, the largest first; if nothing is proven, what was opened and
    /// stays open.
    pub(super) fn leaks(&self) -> Vec<Leak> {
        let listed = self.watched.iter().filter(|one| one.timeline.is_listed());
        let mut proven: Vec<Leak> = listed.clone().flat_map(Close::proven).collect();
        if proven.is_empty() {
            proven = listed.flat_map(Close::suspects).collect();
        }
        proven.sort_by_key(|leak| std::cmp::Reverse(leak.count));
        proven.truncate(SUSPECTS);
        proven
    }
}

impl Close<'_> {
    fn look(&mut self, now: Duration, candidate: &Candidate) -> Result<(), Error> {
        let cost = Cost::start();
        let is_due = now >= self.again;
        let mut tick = if is_due {
            self.watcher.list()?
        } else if now >= self.list {
            self.watcher.tick()?
        } else {
            self.watcher.glance()?
        };
        if tick.listed {
            let again = self.watcher.verify(AGAIN)?;
            tick.opened.extend(again.opened);
            tick.closed.extend(again.closed);
            tick.changed.extend(again.changed);
            let pause = cost.spent() * LIST_SHARE;
            self.list = now + pause;
            if is_due {
                self.again = now + pause.max(AGAIN_EVERY);
            }
        }
        self.timeline.observe(&Look {
            at: now.as_secs_f64(),
            count: Some(tick.count),
            table: tick.change(),
            limits: Some(candidate.limits),
            ..Look::default()
        });
        Ok(())
    }

    fn proven(&self) -> Vec<Leak> {
        let leaking = trend::leaking(&self.timeline).into_iter();
        let leaks = leaking.map(|one| Leak {
            pid: self.key.pid,
            class: one.class,
            target: one.target,
            count: one.count,
            per_minute: one.slope.map(|slope| slope.per_second * 60.0),
            proven: true,
        });
        leaks.collect()
    }

    /// What was opened since the first list, in groups.
    fn suspects(&self) -> Vec<Leak> {
        let mut groups: BTreeMap<(Class, Text), (u64, f64)> = BTreeMap::new();
        for (_, held) in self.timeline.live().iter() {
            let Some(since) = held.since.filter(|_| !held.class.is_of_fdguard()) else {
                continue;
            };
            let target = collapsed(&held.class, &held.target);
            let (count, first) = groups
                .entry((held.class.clone(), target))
                .or_insert((0, since));
            *count += 1;
            *first = first.min(since);
        }
        let now = self.timeline.now();
        let large = groups
            .into_iter()
            .filter(|(_, (count, _))| *count >= LEAST_SUSPECT);
        let leaks = large.map(|((class, target), (count, first))| Leak {
            pid: self.key.pid,
            class: Some(class),
            target: Some(target),
            count,
            per_minute: (now - first >= 1.0).then(|| as_f64(count) / (now - first) * 60.0),
            proven: false,
        });
        leaks.collect()
    }
}

/// Digits distinguish one of many: without them the names are the same.
fn collapsed(class: &Class, target: &Text) -> Text {
    if class.is_tcp() {
        // Each has its own peer.
        return Text::from("socket:[*]");
    }
    let text = target.to_lossy();
    let mut short = String::with_capacity(text.len());
    for letter in text.chars() {
        if !letter.is_ascii_digit() {
            short.push(letter);
        } else if !short.ends_with('*') {
            short.push('*');
        }
    }
    Text::from(short.as_str())
}
