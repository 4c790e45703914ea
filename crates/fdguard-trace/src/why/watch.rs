//! The answers for the processes of a trace: walks while their descriptors grow, and at the end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fdguard_core::origin::Culprit;
use fdguard_proc::link::Link;
use fdguard_why::{Basis, FirstWalk, LastUse, Why};
use serde::Serialize;

use super::{HeapAnswer, HeapRefusal, HeapTarget, open_paths};
use crate::inject::comm;
use crate::observed_trace::is_alive;
use crate::{Error, TraceSession};

/// Fewer descriptors are no growth.
const ENOUGH: usize = 4;
/// Between two walks of a process that grows.
const PAUSE: Duration = Duration::from_millis(1500);
/// The same in the first moments: a short program ends in them.
const EARLY_PAUSE: Duration = Duration::from_millis(100);
const EARLY: Duration = Duration::from_secs(5);
/// The same if the program prints a few lines each time: after the first walk, and at most. The
/// first comes while the program starts, and knows little of what grows.
const HEARD_PAUSE: Duration = Duration::from_secs(4);
const LONGEST_HEARD_PAUSE: Duration = Duration::from_secs(30);
/// A pause is at least this many times as long as the walk before.
const PART: u32 = 4;
/// The same if the walk stops all threads: a program that grows may lose two percent.
const PART_OF_ALL: u32 = 50;
/// The most sites that are answered for.
const MOST_SITES: usize = 20;
/// The most chains of a site.
const MOST_CHAINS: usize = 3;
const MOST_CHAINS_BEFORE: usize = 12;

/// What holds the descriptors of a process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessWhy {
    /// The process.
    pub pid: u32,
    /// Its command name.
    pub comm: String,
    /// How many objects its heap has; `None` if it was not walked.
    pub objects: Option<usize>,
    /// How many of them a full collection would take.
    pub unreachable: Option<usize>,
    /// The longest time that a thread of it was stopped for a walk, in milliseconds.
    pub stop_ms: Option<f64>,
    /// How long it has waited in all to be walked, in milliseconds; `None` if it never did.
    pub waited_ms: Option<f64>,
    /// How often it was walked.
    pub walks: u32,
    /// Why the answer is that of an earlier walk: the last one failed, or more was opened since.
    pub stale: Option<String>,
    /// Why there is no answer, and what works instead.
    pub refusal: Option<String>,
    /// The places that opened them, the one with the most first.
    pub sites: Vec<SiteWhy>,
    /// Further places, which were not looked at because there are too many.
    pub more_sites: usize,
}

/// What holds the descriptors that one place opened.
#[derive(Clone, Debug, Serialize)]
pub struct SiteWhy {
    /// The place; `None` for what was open before the trace.
    pub culprit: Option<Culprit>,
    /// What they are: `sockets`.
    pub what: String,
    /// Their numbers.
    pub fds: Vec<u32>,
    /// The answer.
    pub why: Why,
}

/// One process.
#[derive(Debug, Default)]
struct ProcessHeap {
    target: Option<HeapTarget>,
    first: Option<FirstWalk>,
    /// When it was first seen.
    seen: Option<Instant>,
    /// How many descriptors it had open at its last walk, and at the last look.
    count: usize,
    latest: usize,
    comm: String,
    last: Option<(Instant, Duration)>,
    answer: Option<ProcessWhy>,
    /// How long it has waited to be walked.
    waited: Duration,
    is_forced: bool,
}

/// The processes of a trace.
#[derive(Debug, Default)]
pub struct HeapWatch {
    processes: BTreeMap<u32, ProcessHeap>,
    is_forced: bool,
    /// When the session was last polled for it.
    looked: Option<Instant>,
}

/// Descriptors that one place opened.
struct Group {
    culprit: Option<Culprit>,
    fds: Vec<u32>,
}

impl HeapWatch {
    /// Walks heaps of any size.
    #[must_use]
    pub fn forced() -> Self {
        Self {
            is_forced: true,
            ..Self::default()
        }
    }

    /// Walks the processes that have grown since their last walk. To be called after each poll.
    pub fn look(&mut self, session: &mut TraceSession) {
        self.looked = Some(Instant::now());
        for (pid, count) in session.open_counts() {
            let one = self.processes.entry(pid).or_default();
            one.note(pid, count, session);
            if one.is_due(count) && is_alive(pid) {
                one.walk(pid, count, session, false);
            }
        }
    }

    /// Walks the processes that wait for that, and lets them go on; in the first moments of the
    /// program also those that have grown. To be called many times in a second.
    pub fn serve(&mut self, session: &mut TraceSession) -> Result<(), Error> {
        let waiting = session.waiting();
        let is_early = self.processes.values().any(ProcessHeap::is_early);
        let is_due = |at: Instant| at.elapsed() >= EARLY_PAUSE;
        if waiting.is_empty() && !(is_early && self.looked.is_none_or(is_due)) {
            return Ok(());
        }
        session.poll()?;
        for (key, since) in waiting {
            let count = session.open_count(key.pid);
            let one = self.processes.entry(key.pid).or_default();
            one.note(key.pid, count, session);
            one.walk(key.pid, count, session, false);
            session.release(key);
            one.waited += since.elapsed().unwrap_or_default();
        }
        self.look(session);
        Ok(())
    }

    /// Walks every process that still runs, with what it had open before fdguard came. Those that
    /// have ended keep the answer of their last walk. No process waits to be walked from now on.
    pub fn finish(&mut self, session: &mut TraceSession) {
        // What a launched program has from its starter is not its own.
        let is_late = session.source().is_late();
        for (pid, count) in session.open_counts() {
            let one = self.processes.entry(pid).or_default();
            one.note(pid, count, session);
            if is_alive(pid) {
                one.walk(pid, count, session, is_late);
            }
        }
        for (pid, one) in &mut self.processes {
            one.end(*pid);
        }
        let waiting = session.waiting();
        session.release_all();
        for (key, since) in waiting {
            let one = self.processes.entry(key.pid).or_default();
            one.waited += since.elapsed().unwrap_or_default();
        }
    }

    /// The same for one process.
    pub fn finish_one(&mut self, session: &mut TraceSession, pid: u32) {
        let count = session.open_count(pid);
        let one = self.processes.entry(pid).or_default();
        one.is_forced = self.is_forced;
        one.walk(pid, count, session, true);
    }

    /// Whether another walk would say more about plain numbers.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        self.undecided().next().is_some()
    }

    /// The same for those whose line is known: what was open before the trace stays undecided.
    #[must_use]
    pub fn wants_lines(&self) -> bool {
        self.undecided().any(|site| site.culprit.is_some())
    }

    /// Whether descriptors of a language without a record have no line that used them.
    #[must_use]
    pub fn wants_uses(&self) -> bool {
        let answers = self.processes.values();
        let mut sites = answers.flat_map(|one| one.answer.iter().flat_map(|one| &one.sites));
        sites.any(|site| {
            let mut chains = site.why.chains.iter();
            site.why.last_use.is_none() && chains.any(|one| one.basis == Basis::NotAvailable)
        })
    }

    fn undecided(&self) -> impl Iterator<Item = &SiteWhy> {
        let answers = self.processes.values();
        let sites = answers.flat_map(|one| one.answer.iter().flat_map(|one| &one.sites));
        sites.filter(|site| {
            let mut chains = site.why.chains.iter();
            chains.any(|chain| chain.basis == Basis::OneWalk)
        })
    }

    /// The answers.
    #[must_use]
    pub fn answers(&self) -> Vec<ProcessWhy> {
        let answers = self.processes.values();
        answers.filter_map(ProcessHeap::answer).collect()
    }
}

impl ProcessHeap {
    /// The answer, with how long the process waited for it.
    fn answer(&self) -> Option<ProcessWhy> {
        let waited_ms = (!self.waited.is_zero()).then(|| milliseconds(self.waited));
        let answer = self.answer.clone()?;
        Some(ProcessWhy {
            waited_ms,
            ..answer
        })
    }

    /// Takes note of what it has open.
    fn note(&mut self, pid: u32, count: usize, session: &TraceSession) {
        self.seen.get_or_insert_with(Instant::now);
        self.latest = count;
        if self.comm.is_empty() {
            self.comm = session.comm_of(pid).unwrap_or_default();
        }
    }

    fn is_early(&self) -> bool {
        self.seen.is_some_and(|at| at.elapsed() < EARLY)
    }

    /// Says what is missing, if it has ended.
    fn end(&mut self, pid: u32) {
        if is_alive(pid) || self.latest < ENOUGH {
            return;
        }
        let new = self.latest.saturating_sub(self.count);
        match &mut self.answer {
            None => {
                let reason = "it ended before it could be asked";
                let refusal = HeapRefusal::new(reason, "");
                let answer = process_why(pid, Vec::new(), &BTreeMap::new(), None, Some(refusal));
                self.answer = Some(ProcessWhy {
                    comm: self.comm.clone(),
                    ..answer
                });
            }
            Some(answer) if new > 0 && answer.refusal.is_none() => {
                answer.stale = Some(format!("{new} more were opened before it ended"));
            }
            Some(_) => {}
        }
    }

    fn is_due(&self, count: usize) -> bool {
        let is_first = self.last.is_none() && count >= ENOUGH;
        let is_later = self.last.is_some_and(|(at, took)| {
            at.elapsed() >= self.pause().max(took * self.part()) && count > self.count
        });
        is_first || is_later
    }

    fn pause(&self) -> Duration {
        let is_heard = self.target.as_ref().is_some_and(HeapTarget::is_heard);
        let walks = self.answer.as_ref().map_or(0, |answer| answer.walks);
        match is_heard {
            true => heard_pause(walks),
            false if self.is_early() => EARLY_PAUSE,
            false => PAUSE,
        }
    }

    /// How much longer a pause is than the walk before.
    fn part(&self) -> u32 {
        match &self.target {
            Some(target) if target.stops_all() => PART_OF_ALL,
            // Most of the walk is the work of a copy, beside the program and at a low priority.
            Some(target) if target.is_heard() => 1,
            _ => PART,
        }
    }

    fn walk(&mut self, pid: u32, count: usize, session: &mut TraceSession, is_end: bool) {
        let began = Instant::now();
        let (groups, more_sites) = groups(pid, session, is_end);
        let uses = session.last_uses(pid).unwrap_or_default();
        let answer = self.ask(pid, &groups);
        self.count = count;
        self.latest = count;
        self.last = Some((Instant::now(), began.elapsed()));
        let walks = self.answer.as_ref().map_or(0, |one| one.walks);
        let stop = self.answer.as_ref().and_then(|one| one.stop_ms);
        match answer {
            Ok(answer) => {
                if self.first.is_none() {
                    self.first = Some(answer.seen.clone());
                }
                let mut new = process_why(pid, groups, &uses, Some(answer), None);
                new.walks += walks;
                new.more_sites = more_sites;
                new.stop_ms = new.stop_ms.map(|ms| stop.map_or(ms, |stop| stop.max(ms)));
                self.answer = Some(new);
            }
            // What an earlier walk has found stays.
            Err(refusal) if walks == 0 => {
                let answer = process_why(pid, groups, &uses, None, Some(refusal));
                self.answer = Some(ProcessWhy {
                    more_sites,
                    ..answer
                });
            }
            // One that has ended meanwhile said more before, unless it grew: see `end`.
            Err(refusal) => {
                if let Some(answer) = &mut self.answer
                    && is_alive(pid)
                {
                    answer.stale = Some(format!("the last one failed: {refusal}"));
                }
            }
        }
    }

    fn ask(&mut self, pid: u32, groups: &[Group]) -> Result<HeapAnswer, HeapRefusal> {
        if self.target.is_none() {
            let target = HeapTarget::examine(pid)?;
            self.target = Some(match self.is_forced {
                true => target.forced(),
                false => target,
            });
        }
        let fds: Vec<Vec<u32>> = groups.iter().map(|group| group.fds.clone()).collect();
        let target = self.target.as_ref();
        let asked = target.map(|target| target.ask(&fds, self.first.as_ref()));
        asked.unwrap_or_else(|| Err(HeapRefusal::new("no such process", "")))
    }
}

/// The pause after so many walks of a program that prints lines each time: twice the one before.
fn heard_pause(walks: u32) -> Duration {
    let times = 1_u32 << walks.saturating_sub(1).min(16);
    HEARD_PAUSE.saturating_mul(times).min(LONGEST_HEARD_PAUSE)
}

/// What is open, by the place that opened it, and how many further places there are.
fn groups(pid: u32, session: &mut TraceSession, is_end: bool) -> (Vec<Group>, usize) {
    let sites = session.sites_of(pid).unwrap_or_default();
    let mut groups: Vec<Group> = Vec::new();
    for site in sites {
        let fds = || site.open.iter().map(|open| open.fd);
        // Two stacks with one place are one site.
        let same = groups
            .iter_mut()
            .find(|group| group.culprit == site.culprit);
        match same {
            Some(group) => group.fds.extend(fds()),
            None => groups.push(Group {
                culprit: site.culprit.clone(),
                fds: fds().collect(),
            }),
        }
    }
    if is_end {
        let known = |fd: &u32| groups.iter().any(|group| group.fds.contains(fd));
        let mut before: BTreeMap<&'static str, Vec<u32>> = BTreeMap::new();
        for (fd, path) in open_paths(pid) {
            if fd > 2 && !known(&fd) {
                before.entry(what(&path)).or_default().push(fd);
            }
        }
        groups.extend(before.into_values().map(|fds| Group { culprit: None, fds }));
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.fds.len()));
    let more = groups.len().saturating_sub(MOST_SITES);
    groups.truncate(MOST_SITES);
    for group in &mut groups {
        group.fds.sort_unstable();
    }
    (groups, more)
}

fn process_why(
    pid: u32,
    groups: Vec<Group>,
    uses: &BTreeMap<u32, Culprit>,
    answer: Option<HeapAnswer>,
    refusal: Option<HeapRefusal>,
) -> ProcessWhy {
    let paths = open_paths(pid);
    let whys = answer.as_ref().map(|answer| answer.whys.clone());
    let mut whys = whys.unwrap_or_default().into_iter();
    let is_language = refusal.as_ref().is_some_and(|one| one.is_language);
    let sites = groups.into_iter().filter_map(|group| {
        let last_use = last_use(&group.fds, uses);
        let why = match is_language {
            true => Some(Why::not_available(
                &group.fds,
                not_available(last_use.as_ref()),
            )),
            false => whys.next(),
        };
        let why = why.map(|why| Why { last_use, ..why });
        let most = match group.culprit {
            Some(_) => MOST_CHAINS,
            // What was there before has many reasons.
            None => MOST_CHAINS_BEFORE,
        };
        let why = why.map(|mut why| {
            why.truncate(most);
            why
        });
        Some(SiteWhy {
            culprit: group.culprit,
            what: what_all(&group.fds, &paths).to_owned(),
            fds: group.fds,
            why: why?,
        })
    });
    let sites = sites.collect();
    ProcessWhy {
        pid,
        comm: comm(pid),
        objects: answer.as_ref().map(|one| one.objects),
        unreachable: answer.as_ref().and_then(|one| one.unreachable),
        stop_ms: answer.as_ref().map(|one| milliseconds(one.stop)),
        waited_ms: None,
        walks: u32::from(answer.is_some()),
        stale: None,
        refusal: refusal
            .filter(|one| !one.is_language)
            .map(|one| one.to_string()),
        sites,
        more_sites: 0,
    }
}

/// To the microsecond.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// The line that used most of these descriptors last.
fn last_use(fds: &[u32], uses: &BTreeMap<u32, Culprit>) -> Option<LastUse> {
    let mut counts: Vec<(&Culprit, usize)> = Vec::new();
    for culprit in fds.iter().filter_map(|fd| uses.get(fd)) {
        match counts.iter_mut().find(|(known, _)| *known == culprit) {
            Some((_, count)) => *count += 1,
            None => counts.push((culprit, 1)),
        }
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(culprit, count)| LastUse {
        file: culprit
            .file
            .as_ref()
            .map(|file| file.to_lossy().into_owned()),
        function: culprit.function.clone(),
        line: culprit.line,
        count,
    })
}

/// The answer for a language that does not say who holds a number.
fn not_available(last_use: Option<&LastUse>) -> String {
    let text = "not available: this language keeps no record of who holds a number";
    let Some(used) = last_use else {
        return format!("{text}; no line is known that used them since they are traced");
    };
    let function = used.function.as_deref().unwrap_or("an unknown function");
    let place = match (&used.file, used.line) {
        (Some(file), Some(line)) => {
            let file = file.rsplit('/').next().unwrap_or(file);
            format!("{function}() {file}:{line}")
        }
        _ => format!("{function}()"),
    };
    let which = match used.count {
        1 => "one was".to_owned(),
        count => format!("{count} were"),
    };
    format!("{text}; {which} last used at {place}")
}

/// What descriptors are, if all are the same.
fn what_all(fds: &[u32], paths: &BTreeMap<u32, String>) -> &'static str {
    let mut whats = fds
        .iter()
        .filter_map(|fd| paths.get(fd))
        .map(|path| what(path));
    let first = whats.next().unwrap_or("descriptors");
    match whats.all(|one| one == first) {
        true => first,
        false => "descriptors",
    }
}

fn what(path: &str) -> &'static str {
    match Link::parse(path.as_bytes()) {
        Link::Socket(_) => "sockets",
        Link::Pipe(_) => "pipes",
        Link::Anonymous(b"[eventpoll]") => "epolls",
        Link::Anonymous(b"[eventfd]") => "eventfds",
        Link::Anonymous(b"inotify") => "inotifies",
        Link::Anonymous(b"[pidfd]") | Link::Numbered { name: b"pidfd", .. } => "pidfds",
        Link::Path { path, .. } if path.starts_with(b"/dev/pts/") || path.ends_with(b"ptmx") => {
            "ptys"
        }
        Link::Path { .. } => "files",
        _ => "descriptors",
    }
}

#[cfg(test)]
mod tests;
