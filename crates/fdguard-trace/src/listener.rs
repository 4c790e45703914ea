//! Reads the events of every traced process as they happen, and detects hazards.
//!
//! A single thread wakes more often the more there is to read: a ring holds a few tens of
//! milliseconds of events of the fastest program.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fdguard_core::children::finding::ChildPile;
use fdguard_core::event::{CollectedEvents, StackId, TraceEvent, What};
use fdguard_core::hazard::{Hazard, HazardDetector};
use fdguard_core::origin::{Origin, Stack};
use fdguard_core::{Gap, TraceKey};
use fdguard_wire::{EVENTS, Omission};
use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};

use crate::children::ChildWatch;
use crate::feed::{Delivery, Feed};
use crate::lifetimes::{LOST_STACK, Lifetimes, SiteDetail, TracedProcess, TraitsOfStacks};
use crate::observed_trace::{UntracedProgram, is_alive};
use crate::omission;
use crate::ring::{DrainedEvents, Ring};
use crate::symbol::Symbols;
use crate::table::{ProcessTable, RawFrame};

/// The longest and the shortest interval between reads of the rings.
const LONGEST: Duration = Duration::from_millis(32);
const SHORTEST: Duration = Duration::from_millis(1);
/// If this much of a ring is in use, it is read twice as often.
const BUSY: u64 = EVENTS as u64 / 16;
/// The most processes whose events are read at the same time: each costs fdguard a descriptor.
const MOST_RINGS: usize = 256;

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    pump: Arc<Mutex<EventPump>>,
    /// Outside the lock, which is held while stacks are named.
    prevented: Arc<AtomicU64>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Starts to listen to everything that is written to this directory.
    pub(crate) fn start(dir: &Path) -> std::io::Result<Self> {
        let pump = EventPump::new(dir);
        let prevented = Arc::clone(&pump.prevented);
        let pump = Arc::new(Mutex::new(pump));
        let (stop, stopped) = mpsc::channel::<()>();
        let shared = Arc::clone(&pump);
        let thread = std::thread::Builder::new()
            .name("fdguard-listen".to_owned())
            .spawn(move || {
                let mut pause = SHORTEST;
                while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    let behind = lock(&shared).poll(false);
                    pause = if behind > BUSY { pause / 2 } else { pause * 2 };
                    pause = pause.clamp(SHORTEST, LONGEST);
                }
            })?;
        Ok(Self {
            pump,
            prevented,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Reads everything new.
    pub(crate) fn poll(&self) {
        lock(&self.pump).poll(false);
    }

    /// The end of the program begins now: closes from now on are not its usual behaviour.
    pub(crate) fn end_begins(&self) {
        let mut pump = lock(&self.pump);
        pump.poll(false);
        pump.lifetimes.end_begins(monotonic());
    }

    /// The program did not end after all.
    pub(crate) fn end_is_off(&self) {
        lock(&self.pump).lifetimes.end_is_off();
    }

    /// What every process opened and closed so far, by line. With `is_end` no further events are
    /// expected.
    pub(crate) fn processes(
        &self,
        symbols: &mut Symbols,
        (is_end, detail): (bool, SiteDetail),
    ) -> Vec<TracedProcess> {
        let unnamed = {
            let mut pump = lock(&self.pump);
            pump.poll(is_end);
            pump.unnamed()
        };
        let named = unnamed
            .into_iter()
            .map(|process| process.name(symbols, detail));
        named.collect()
    }

    /// Whether all events of this table were read: then its file is no longer needed.
    pub(crate) fn is_done_with(&self, key: (u32, u64)) -> bool {
        lock(&self.pump).is_done_with(key)
    }

    /// How many events were prevented from doing harm; can be read at any time.
    pub(crate) fn prevented(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.prevented)
    }

    /// The hazards found so far. With `is_end` no further events are expected.
    pub(crate) fn hazards(&self, symbols: &mut Symbols, is_end: bool) -> (Vec<Hazard>, Vec<Gap>) {
        let mut pump = lock(&self.pump);
        pump.poll(is_end);
        pump.hazards(symbols)
    }

    /// The lines that repeatedly start children without waiting for them.
    pub(crate) fn child_piles(&self, symbols: &mut Symbols, is_end: bool) -> Vec<ChildPile> {
        let mut pump = lock(&self.pump);
        pump.poll(is_end);
        pump.child_piles(symbols)
    }

    /// Every line that started children, with the start times of those that were not waited for so
    /// far.
    pub(crate) fn child_lines(&self, symbols: &mut Symbols) -> Vec<(ChildPile, Vec<u64>)> {
        let mut pump = lock(&self.pump);
        pump.poll(false);
        let now = monotonic();
        pump.children.poll_now(now);
        let name = |stack| symbols.name(pump.stacks.raw_frames_of(stack));
        pump.children.lines(now, name)
    }

    /// Children that became a program without the library.
    pub(crate) fn became(&self) -> BTreeMap<u32, UntracedProgram> {
        lock(&self.pump).children.became().clone()
    }

    /// The line that started a process.
    pub(crate) fn child_origin(&self, pid: u32, symbols: &mut Symbols) -> Option<Origin> {
        let mut pump = lock(&self.pump);
        pump.poll(false);
        pump.child_origin(pid, symbols)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It stops at its next check; if it panicked, the panic was already shown.
            drop(thread.join());
        }
    }
}

/// The hazards that the rings of this directory prove right now, read once from their oldest event
/// on.
pub(crate) fn recent(dir: &Path, symbols: &mut Symbols) -> (Vec<Hazard>, Vec<Gap>) {
    let mut pump = EventPump::new(dir);
    pump.poll(true);
    pump.hazards(symbols)
}

fn lock(pump: &Mutex<EventPump>) -> MutexGuard<'_, EventPump> {
    pump.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pumps events from the rings to the hazard detector, the lifetimes and the children.
#[derive(Debug)]
struct EventPump {
    dir: PathBuf,
    rings: BTreeMap<(u32, u64), Source>,
    /// Tables of ended processes, or tables that could not be opened.
    over: BTreeSet<PathBuf>,
    detector: HazardDetector,
    lifetimes: Lifetimes,
    children: ChildWatch,
    stacks: Stacks,
    prevented: Arc<AtomicU64>,
    /// Programs that ended processes started without the library.
    omissions: [u64; Omission::KINDS],
    unread_processes: u64,
}

#[derive(Debug)]
struct Source {
    path: PathBuf,
    ring: Ring,
    feed: Feed,
    omissions: [u64; Omission::KINDS],
}

impl EventPump {
    fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            rings: BTreeMap::new(),
            over: BTreeSet::new(),
            detector: HazardDetector::new(CollectedEvents::ALL),
            lifetimes: Lifetimes::default(),
            children: ChildWatch::default(),
            stacks: Stacks::default(),
            prevented: Arc::default(),
            omissions: [0; Omission::KINDS],
            unread_processes: 0,
        }
    }

    /// Reads everything new; returns how much of the fullest ring was in use.
    fn poll(&mut self, is_end: bool) -> u64 {
        self.find();
        let now = monotonic();
        let mut most = 0;
        let latest: HashMap<u32, u64> = self.rings.keys().copied().collect();
        for (key, mut source) in std::mem::take(&mut self.rings) {
            // Checked before reading: a process that is gone now writes nothing afterwards.
            let is_over = latest.get(&key.0) != Some(&key.1) || !is_alive(key.0);
            // A file that cannot be read any more belongs to no process.
            let Ok(drained) = source.ring.drain(now, is_end || is_over) else {
                self.close(key, source);
                continue;
            };
            most = most.max(drained.behind);
            self.process_events(key, &mut source, drained, (now, is_end || is_over));
            if is_over {
                self.finish(key, &source, now);
                self.close(key, source);
            } else {
                self.rings.insert(key, source);
            }
        }
        self.children.poll(now);
        most
    }

    /// Applies the events of one process.
    fn process_events(
        &mut self,
        key: (u32, u64),
        source: &mut Source,
        drained: DrainedEvents,
        (now, is_end): (u64, bool),
    ) {
        self.stacks.learn(key, &source.path, &drained.events);
        let stacks = &self.stacks;
        let number = |stack| stacks.number(key, stack);
        if drained.lost > 0 {
            let count = drained.lost;
            let lost = aside(&source.feed, now, What::Lost { count });
            self.detector.observe(&lost);
            self.lifetimes.lose(key, &source.path, count, &number);
        }
        let traits = TraitsOfStacks {
            is_python: &|stack| stacks.has(stack, |code| code.is_python),
            is_in_module: &|stack| stacks.has(stack, |code| code.is_in_module),
        };
        let path = &source.path;
        self.lifetimes
            .apply_events(key, path, &drained.events, &number, &traits);
        let process = source.feed.process();
        self.children
            .apply_events(process, (key.1, drained.is_forked), &drained.events, number);
        for (known, count) in source.omissions.iter_mut().zip(drained.omissions) {
            // A header that could not be read has no counts.
            *known = count.max(*known);
        }
        if source.feed.is_first(&drained) && drained.is_forked {
            self.detector
                .observe(&aside(&source.feed, now, What::Forked));
        }
        source.feed.push(drained);
        let mut number = |stack| self.stacks.number(key, stack);
        while let Some(event) = source.feed.next(now, is_end, &mut number) {
            match source.feed.delivery() {
                Delivery::InOrder => self.detector.observe(&event),
                Delivery::Late => self.detector.observe_late(&event),
                Delivery::Prevented => {
                    self.prevented.fetch_add(1, Ordering::Relaxed);
                    self.detector.observe_prevented(&event);
                }
            }
        }
    }

    /// A process is gone: its table is read once more.
    fn finish(&mut self, key: (u32, u64), source: &Source, now: u64) {
        if let Ok(Some(table)) = ProcessTable::read(&source.path) {
            let stacks: BTreeSet<u32> = table.accounts.keys().copied().collect();
            self.stacks.learn_from(key, Some(&table), stacks);
            let stacks = &self.stacks;
            let number = |stack| stacks.number(key, stack);
            self.lifetimes.finish(key, &table, now, &number);
        }
        self.detector.observe(&aside(&source.feed, now, What::Exit));
        self.children.end(source.feed.process(), now);
    }

    fn close(&mut self, key: (u32, u64), source: Source) {
        self.stacks.forget(key);
        for (total, count) in self.omissions.iter_mut().zip(source.omissions) {
            *total += count;
        }
        self.over.insert(source.path);
    }

    fn unnamed(&mut self) -> Vec<crate::lifetimes::UnnamedProcess> {
        let rings = &self.rings;
        let file_of = |key| rings.get(&key).map(|source| source.path.clone());
        let stacks = &self.stacks;
        let raw_frames = |stack| stacks.raw_frames_of(stack).to_vec();
        self.lifetimes.unnamed(monotonic(), &file_of, &raw_frames)
    }

    /// Not while its ring is being read, and not before it was found.
    fn is_done_with(&self, key: (u32, u64)) -> bool {
        !self.rings.contains_key(&key) && self.over.iter().any(|path| key_of(path) == Some(key))
    }

    /// Looks for new processes.
    fn find(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.dir) else {
            return;
        };
        let paths: BTreeSet<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        // The files of ended processes are removed as well: a build starts thousands.
        self.over.retain(|path| paths.contains(path));
        for path in paths {
            let Some(key) = key_of(&path) else {
                continue;
            };
            if self.rings.contains_key(&key) || self.over.contains(&path) {
                continue;
            }
            if self.rings.len() >= MOST_RINGS {
                self.unread_processes += 1;
                self.over.insert(path);
                continue;
            }
            let process = TraceKey {
                pid: key.0,
                began: key.1,
            };
            if let Ok(ring) = Ring::open(&path) {
                let feed = Feed::new(process);
                let omissions = [0; Omission::KINDS];
                let source = Source {
                    path,
                    ring,
                    feed,
                    omissions,
                };
                self.rings.insert(key, source);
            }
        }
    }

    fn child_piles(&self, symbols: &mut Symbols) -> Vec<ChildPile> {
        let name = |stack| symbols.name(self.stacks.raw_frames_of(stack));
        self.children.piles(name)
    }

    fn child_origin(&self, pid: u32, symbols: &mut Symbols) -> Option<Origin> {
        let name = |stack| symbols.name(self.stacks.raw_frames_of(stack));
        self.children.origin(pid, name)
    }

    fn all_omissions(&self) -> [u64; Omission::KINDS] {
        let mut all = self.omissions;
        for source in self.rings.values() {
            for (total, count) in all.iter_mut().zip(source.omissions) {
                *total += count;
            }
        }
        all
    }

    fn hazards(&self, symbols: &mut Symbols) -> (Vec<Hazard>, Vec<Gap>) {
        let symbols = RefCell::new(symbols);
        let resolve = |stack: StackId| -> Stack {
            let raw_frames = self.stacks.raw_frames_of(stack);
            symbols.borrow_mut().name(raw_frames)
        };
        let (wall, now) = (Timestamp::now(), monotonic());
        let clock = |at: u64| {
            let ago = Duration::from_nanos(now.saturating_sub(at));
            let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::ZERO);
            wall.checked_sub(ago).unwrap_or(wall)
        };
        let mut hazards = self.detector.hazards(&resolve, &clock);
        hazards.retain(|hazard| !hazard.is_of_others());
        let mut gaps = self.detector.gaps();
        gaps.extend(omission::gaps(&self.all_omissions()));
        if self.unread_processes > 0 {
            gaps.push(Gap::new(
                format!("hazards in {} processes", self.unread_processes),
                format!("more than {MOST_RINGS} traced processes run at the same time"),
                "trace fewer processes at once",
            ));
        }
        (hazards, gaps)
    }
}

fn aside(feed: &Feed, now: u64, what: What) -> TraceEvent {
    TraceEvent {
        process: feed.process(),
        thread: 0,
        at: now,
        stack: None,
        what,
    }
}

/// `PID-BEGAN.fdguard`.
fn key_of(path: &Path) -> Option<(u32, u64)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".fdguard")?;
    let (pid, began) = name.split_once('-')?;
    Some((pid.parse().ok()?, began.parse().ok()?))
}

/// The stacks of all processes, read when they are first seen: their tables may be gone at the end.
#[derive(Debug, Default)]
struct Stacks {
    numbers: HashMap<(u32, u64), HashMap<u32, StackId>>,
    /// Thousands of processes of one program share the same few stacks.
    same: HashMap<Vec<RawFrame>, StackId>,
    raw_frames: Vec<Vec<RawFrame>>,
    traits: Vec<StackTraits>,
}

impl Stacks {
    /// Reads the stacks that are new in these events.
    fn learn(
        &mut self,
        (pid, began): (u32, u64),
        path: &Path,
        events: &[fdguard_wire::EventRecord],
    ) {
        let known = self.numbers.entry((pid, began)).or_default();
        let is_new = |stack: &u32| *stack != 0 && !known.contains_key(stack);
        let new: BTreeSet<u32> = events
            .iter()
            .map(|event| event.stack)
            .filter(is_new)
            .collect();
        if new.is_empty() {
            return;
        }
        // Without its table a stack has no frames.
        let table = ProcessTable::read(path).ok().flatten();
        self.learn_from((pid, began), table.as_ref(), new);
    }

    fn learn_from(&mut self, key: (u32, u64), table: Option<&ProcessTable>, stacks: BTreeSet<u32>) {
        let known = self.numbers.entry(key).or_default();
        for stack in stacks {
            if known.contains_key(&stack) {
                continue;
            }
            let raw_frames = table
                .map(|table| table.raw_frames(stack))
                .unwrap_or_default();
            if raw_frames.is_empty() && table.is_some() {
                // Another thread is writing it right now: the next event that refers to it tries
                // again.
                continue;
            }
            let next = StackId(u32::try_from(self.raw_frames.len()).unwrap_or(u32::MAX));
            let number = *self
                .same
                .entry(raw_frames)
                .or_insert_with_key(|raw_frames| {
                    self.traits.push(StackTraits::from_raw_frames(raw_frames));
                    self.raw_frames.push(raw_frames.clone());
                    next
                });
            known.insert(stack, number);
        }
    }

    fn has(&self, number: StackId, what: impl Fn(&StackTraits) -> bool) -> bool {
        let index = usize::try_from(number.0).unwrap_or(usize::MAX);
        self.traits.get(index).is_some_and(what)
    }

    /// Its events were all read; the stacks that they refer to are kept.
    fn forget(&mut self, process: (u32, u64)) {
        self.numbers.remove(&process);
    }

    fn number(&self, (pid, began): (u32, u64), stack: u32) -> StackId {
        let of_process = self.numbers.get(&(pid, began));
        let known = of_process.and_then(|known| known.get(&stack));
        known.copied().unwrap_or(LOST_STACK)
    }

    fn raw_frames_of(&self, number: StackId) -> &[RawFrame] {
        let known = usize::try_from(number.0)
            .ok()
            .and_then(|index| self.raw_frames.get(index));
        known.map(Vec::as_slice).unwrap_or_default()
    }
}

/// The kind of code in a stack.
#[derive(Clone, Copy, Debug, Default)]
struct StackTraits {
    is_python: bool,
    /// The outermost level of a Python program or module.
    is_in_module: bool,
}

impl StackTraits {
    fn from_raw_frames(raw_frames: &[RawFrame]) -> Self {
        let mut code = Self::default();
        for raw_frame in raw_frames {
            if let RawFrame::Language {
                tongue: fdguard_wire::RuntimeLanguage::Python,
                function,
                ..
            } = raw_frame
            {
                code.is_python = true;
                code.is_in_module |= function == "<module>";
            }
        }
        code
    }
}

/// The current time by the clock that the injected library uses, in nanoseconds.
#[must_use]
pub fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    let passed = Duration::new(time.tv_sec.unsigned_abs(), nanos);
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
}
