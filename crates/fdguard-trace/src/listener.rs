//! Reads the events of every traced process as they happen, and detects hazards.
//!
//! A single thread wakes more often the more there is to read: a ring holds a few tens of
//! milliseconds of events of the fastest program.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fdguard_core::children::finding::ChildPile;
use fdguard_core::event::{StackId, TraceEvent, What};
use fdguard_core::hazard::{Hazard, HazardDetector};
use fdguard_core::origin::{Origin, Stack};
use fdguard_core::units::counted;
use fdguard_core::{Gap, TraceKey};
/// The clock that the injected library uses.
pub use fdguard_proc::clock::monotonic_nanos as monotonic;
use fdguard_wire::{EVENTS, Omission};
use jiff::{SignedDuration, Timestamp};

use crate::children::ChildWatch;
use crate::feed::{Delivery, Feed};
use crate::latest_keys::LatestKeys;
use crate::lifetimes::{Lifetimes, TraitsOfStacks, UnnamedProcess};
use crate::omission;
use crate::ring::DrainedEvents;
use crate::source::{EventReader, TraceSource};
use crate::stacks::Stacks;
use crate::symbol::Symbols;

/// The longest and the shortest interval between reads of the rings.
const LONGEST: Duration = Duration::from_millis(32);
const SHORTEST: Duration = Duration::from_millis(1);
/// If this much of a ring is in use, it is read twice as often.
const BUSY: u64 = EVENTS as u64 / 16;

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    pump: Arc<Mutex<EventPump>>,
    /// How many events were prevented from doing harm. Outside the lock, which is held while stacks
    /// are named.
    pub(crate) prevented: Arc<AtomicU64>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Reads the source's events only when asked.
    pub(crate) fn on_demand(source: Arc<dyn TraceSource>) -> Self {
        let pump = EventPump::new(source);
        Self {
            prevented: Arc::clone(&pump.prevented),
            pump: Arc::new(Mutex::new(pump)),
            stop: None,
            thread: None,
        }
    }

    /// Starts to listen to every process of the source.
    pub(crate) fn start(source: Arc<dyn TraceSource>) -> std::io::Result<Self> {
        let mut listener = Self::on_demand(source);
        let (stop, stopped) = mpsc::channel::<()>();
        let shared = Arc::clone(&listener.pump);
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
        listener.stop = Some(stop);
        listener.thread = Some(thread);
        Ok(listener)
    }

    /// The results as they are.
    pub(crate) fn pump(&self) -> MutexGuard<'_, EventPump> {
        lock(&self.pump)
    }

    /// The results after everything new was read. With `is_end` no further events are expected.
    pub(crate) fn polled(&self, is_end: bool) -> MutexGuard<'_, EventPump> {
        let mut pump = self.pump();
        pump.poll(is_end);
        pump
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

fn lock(pump: &Mutex<EventPump>) -> MutexGuard<'_, EventPump> {
    pump.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pumps events from the rings to the hazard detector, the lifetimes and the children.
#[derive(Debug)]
pub(crate) struct EventPump {
    source: Arc<dyn TraceSource>,
    readers: BTreeMap<TraceKey, ProcessReader>,
    /// Ended processes, and those that could not be read.
    over: BTreeSet<TraceKey>,
    detector: HazardDetector,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) children: ChildWatch,
    stacks: Stacks,
    prevented: Arc<AtomicU64>,
    /// Programs that ended processes started without the library.
    omissions: [u64; Omission::KINDS],
    unread_processes: u64,
}

/// Reads one process.
#[derive(Debug)]
struct ProcessReader {
    events: Box<dyn EventReader>,
    feed: Feed,
    omissions: [u64; Omission::KINDS],
}

impl EventPump {
    fn new(source: Arc<dyn TraceSource>) -> Self {
        Self {
            readers: BTreeMap::new(),
            over: BTreeSet::new(),
            detector: HazardDetector::new(source.collects()),
            source,
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
        let latest = LatestKeys::new(self.readers.keys().copied());
        for (key, mut reader) in std::mem::take(&mut self.readers) {
            // Checked before reading: a process that is gone now writes nothing afterwards.
            let is_over = !latest.contains(key) || !self.source.is_running(key);
            // A file that cannot be read any more belongs to no process.
            let Ok(drained) = reader.events.drain(now, is_end || is_over) else {
                self.close(key, &reader);
                continue;
            };
            most = most.max(drained.behind);
            self.process_events(key, &mut reader, drained, (now, is_end || is_over));
            if is_over {
                self.finish(key, &reader.feed, now);
                self.close(key, &reader);
            } else {
                self.readers.insert(key, reader);
            }
        }
        self.children.poll(now);
        most
    }

    /// Applies the events of one process.
    fn process_events(
        &mut self,
        key: TraceKey,
        reader: &mut ProcessReader,
        drained: DrainedEvents,
        (now, is_end): (u64, bool),
    ) {
        let source = &*self.source;
        self.stacks.learn(key, source, &drained.events);
        let stacks = &self.stacks;
        let number = |stack| stacks.number(key, stack);
        if drained.lost > 0 {
            let count = drained.lost;
            let lost = aside(&reader.feed, now, What::Lost { count });
            self.detector.observe(&lost);
            self.lifetimes.lose(key, source, count, &number);
        }
        let traits = TraitsOfStacks {
            is_python: &|stack| stacks.has(stack, |code| code.is_python),
            is_in_module: &|stack| stacks.has(stack, |code| code.is_in_module),
        };
        self.lifetimes
            .apply_events(key, source, &drained.events, &number, &traits);
        let process = reader.feed.process();
        self.children.apply_events(
            process,
            (key.began, drained.is_forked),
            &drained.events,
            number,
        );
        for (known, count) in reader.omissions.iter_mut().zip(drained.omissions) {
            // A header that could not be read has no counts.
            *known = count.max(*known);
        }
        if reader.feed.is_first(&drained) && drained.is_forked {
            self.detector
                .observe(&aside(&reader.feed, now, What::Forked));
        }
        reader.feed.push(drained);
        let mut number = |stack| self.stacks.number(key, stack);
        while let Some(event) = reader.feed.next(now, is_end, &mut number) {
            match reader.feed.delivery() {
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
    fn finish(&mut self, key: TraceKey, feed: &Feed, now: u64) {
        if let Ok(Some(table)) = self.source.table(key) {
            let stacks: BTreeSet<u32> = table.accounts.keys().copied().collect();
            self.stacks.learn_from(key, Some(&table), stacks);
            let stacks = &self.stacks;
            let number = |stack| stacks.number(key, stack);
            self.lifetimes.finish(key, &table, now, &number);
        }
        self.detector.observe(&aside(feed, now, What::Exit));
        self.children.end(feed.process(), now);
    }

    fn close(&mut self, key: TraceKey, reader: &ProcessReader) {
        self.stacks.forget(key);
        for (total, count) in self.omissions.iter_mut().zip(reader.omissions) {
            *total += count;
        }
        self.over.insert(key);
    }

    /// What every process opened and closed so far, to be named outside the lock.
    pub(crate) fn unnamed(&mut self) -> Vec<UnnamedProcess> {
        let (source, readers) = (&self.source, &self.readers);
        let table_of = |key| {
            let is_read = readers.contains_key(&key);
            is_read.then(|| source.table(key).ok().flatten()).flatten()
        };
        let stacks = &self.stacks;
        let raw_frames = |stack| stacks.raw_frames_of(stack).to_vec();
        self.lifetimes.unnamed(monotonic(), &table_of, &raw_frames)
    }

    /// Whether all events of a process were read: then its records are no longer needed. Not while
    /// they are being read, and not before it was found.
    pub(crate) fn is_done_with(&self, key: TraceKey) -> bool {
        !self.readers.contains_key(&key) && self.over.contains(&key)
    }

    /// Looks for new processes.
    fn find(&mut self) {
        let Ok(keys) = self.source.processes() else {
            return;
        };
        // The records of ended processes are removed as well: a build starts thousands.
        self.over.retain(|key| keys.binary_search(key).is_ok());
        for key in keys {
            if self.readers.contains_key(&key) || self.over.contains(&key) {
                continue;
            }
            if self.readers.len() >= self.source.most_processes() {
                self.unread_processes += 1;
                self.over.insert(key);
                continue;
            }
            if let Ok(events) = self.source.events(key) {
                let reader = ProcessReader {
                    events,
                    feed: Feed::new(key),
                    omissions: [0; Omission::KINDS],
                };
                self.readers.insert(key, reader);
            }
        }
    }

    /// The lines that repeatedly start children without waiting for them.
    pub(crate) fn child_piles(&self, symbols: &mut Symbols) -> Vec<ChildPile> {
        self.children.piles(|stack| self.name(stack, symbols))
    }

    /// Every line that started children, with the start times of those that were not waited for so
    /// far.
    pub(crate) fn child_lines(&mut self, symbols: &mut Symbols) -> Vec<(ChildPile, Vec<u64>)> {
        let now = monotonic();
        self.children.poll_now(now);
        self.children.lines(now, |stack| self.name(stack, symbols))
    }

    /// The line that started a process.
    pub(crate) fn child_origin(&self, pid: u32, symbols: &mut Symbols) -> Option<Origin> {
        self.children.origin(pid, |stack| self.name(stack, symbols))
    }

    fn name(&self, stack: StackId, symbols: &mut Symbols) -> Stack {
        symbols.name(self.stacks.raw_frames_of(stack))
    }

    fn all_omissions(&self) -> [u64; Omission::KINDS] {
        let mut all = self.omissions;
        for reader in self.readers.values() {
            for (total, count) in all.iter_mut().zip(reader.omissions) {
                *total += count;
            }
        }
        all
    }

    /// The hazards found so far, and what could not be checked.
    pub(crate) fn hazards(&self, symbols: &mut Symbols) -> (Vec<Hazard>, Vec<Gap>) {
        let symbols = RefCell::new(symbols);
        let resolve = |stack: StackId| self.name(stack, &mut symbols.borrow_mut());
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
            let most = self.source.most_processes();
            gaps.push(Gap::new(
                format!("hazards in {}", counted(self.unread_processes, "process")),
                format!("more than {most} traced processes run at the same time"),
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
