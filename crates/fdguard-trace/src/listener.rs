//! Reads the events of every traced process as they happen, and detects hazards.
//!
//! One thread, which wakes more often the more there is to read: a ring holds some tens of
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
use fdguard_core::event::{Collected, Event, StackId, What};
use fdguard_core::hazard::{Hazard, Lookout};
use fdguard_core::origin::{Origin, Stack};
use fdguard_core::{Gap, ProcKey};
use fdguard_wire::{EVENTS, Omission};
use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};

use crate::children::ChildWatch;
use crate::feed::{Feed, Manner};
use crate::lifetimes::{Codes, Detail, LOST_STACK, Lifetimes, TracedProcess};
use crate::observe::{Became, is_alive};
use crate::omission;
use crate::ring::{Drained, Ring};
use crate::symbol::Symbols;
use crate::table::{Spot, Table};

/// How often at least and at most the rings are read.
const LONGEST: Duration = Duration::from_millis(32);
const SHORTEST: Duration = Duration::from_millis(1);
/// With so much of a ring in use it is read twice as often.
const BUSY: u64 = EVENTS as u64 / 16;
/// So many processes are listened to at the same time: each costs us a descriptor.
const MOST_RINGS: usize = 256;

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    heard: Arc<Mutex<Heard>>,
    /// Beside the lock, which is held while stacks are named.
    prevented: Arc<AtomicU64>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Begins to listen to all that is written to this folder.
    pub(crate) fn begin(folder: &Path) -> std::io::Result<Self> {
        let heard = Heard::new(folder);
        let prevented = Arc::clone(&heard.prevented);
        let heard = Arc::new(Mutex::new(heard));
        let (stop, stopped) = mpsc::channel::<()>();
        let shared = Arc::clone(&heard);
        let thread = std::thread::Builder::new()
            .name("fdguard-listen".to_owned())
            .spawn(move || {
                let mut pause = SHORTEST;
                while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    let behind = lock(&shared).look(false);
                    pause = if behind > BUSY { pause / 2 } else { pause * 2 };
                    pause = pause.clamp(SHORTEST, LONGEST);
                }
            })?;
        Ok(Self {
            heard,
            prevented,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Reads all that is new.
    pub(crate) fn look(&self) {
        lock(&self.heard).look(false);
    }

    /// The end of the program begins now: what is closed from now on is not its habit.
    pub(crate) fn end_begins(&self) {
        let mut heard = lock(&self.heard);
        heard.look(false);
        heard.lifetimes.end_begins(monotonic());
    }

    /// The end did not come after all.
    pub(crate) fn end_is_off(&self) {
        lock(&self.heard).lifetimes.end_is_off();
    }

    /// What every process opened and closed until now, by line. With `is_end` nothing more is
    /// expected of anybody.
    pub(crate) fn processes(
        &self,
        symbols: &mut Symbols,
        (is_end, detail): (bool, Detail),
    ) -> Vec<TracedProcess> {
        let unnamed = {
            let mut heard = lock(&self.heard);
            heard.look(is_end);
            heard.unnamed()
        };
        let named = unnamed
            .into_iter()
            .map(|process| process.name(symbols, detail));
        named.collect()
    }

    /// Whether all events of this table were read: then its file is not needed any more.
    pub(crate) fn is_done_with(&self, key: (u32, u64)) -> bool {
        lock(&self.heard).is_done_with(key)
    }

    /// How many events were prevented from doing harm: to be asked at any time.
    pub(crate) fn prevented(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.prevented)
    }

    /// What was found until now. With `is_end` nothing more is expected of anybody.
    pub(crate) fn hazards(&self, symbols: &mut Symbols, is_end: bool) -> (Vec<Hazard>, Vec<Gap>) {
        let mut heard = lock(&self.heard);
        heard.look(is_end);
        heard.hazards(symbols)
    }

    /// The lines that start children again and again and do not wait for them.
    pub(crate) fn child_piles(&self, symbols: &mut Symbols, is_end: bool) -> Vec<ChildPile> {
        let mut heard = lock(&self.heard);
        heard.look(is_end);
        heard.child_piles(symbols)
    }

    /// Every line that started children, with the starts of those that nobody waited for until now.
    pub(crate) fn child_lines(&self, symbols: &mut Symbols) -> Vec<(ChildPile, Vec<u64>)> {
        let mut heard = lock(&self.heard);
        heard.look(false);
        let now = monotonic();
        heard.children.look_now(now);
        let name = |stack| symbols.name(heard.stacks.spots_of(stack));
        heard.children.lines(now, name)
    }

    /// Children that became a program without the library.
    pub(crate) fn became(&self) -> BTreeMap<u32, Became> {
        lock(&self.heard).children.became().clone()
    }

    /// The line that started a process.
    pub(crate) fn child_origin(&self, pid: u32, symbols: &mut Symbols) -> Option<Origin> {
        let mut heard = lock(&self.heard);
        heard.look(false);
        heard.child_origin(pid, symbols)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ends at its next look; a panic of it was shown already.
            drop(thread.join());
        }
    }
}

/// What the rings of this folder prove right now, read once from their oldest event on.
pub(crate) fn recent(folder: &Path, symbols: &mut Symbols) -> (Vec<Hazard>, Vec<Gap>) {
    let mut heard = Heard::new(folder);
    heard.look(true);
    heard.hazards(symbols)
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was heard.
#[derive(Debug)]
struct Heard {
    folder: PathBuf,
    rings: BTreeMap<(u32, u64), Source>,
    /// Tables that are over, or could not be opened.
    over: BTreeSet<PathBuf>,
    lookout: Lookout,
    lifetimes: Lifetimes,
    children: ChildWatch,
    stacks: Stacks,
    prevented: Arc<AtomicU64>,
    /// Programs that processes which are gone started without the library.
    omissions: [u64; Omission::KINDS],
    unheard: u64,
}

#[derive(Debug)]
struct Source {
    path: PathBuf,
    ring: Ring,
    feed: Feed,
    omissions: [u64; Omission::KINDS],
}

impl Heard {
    fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            rings: BTreeMap::new(),
            over: BTreeSet::new(),
            lookout: Lookout::new(Collected::ALL),
            lifetimes: Lifetimes::default(),
            children: ChildWatch::default(),
            stacks: Stacks::default(),
            prevented: Arc::default(),
            omissions: [0; Omission::KINDS],
            unheard: 0,
        }
    }

    /// Reads all that is new; gives how much of the fullest ring was in use.
    fn look(&mut self, is_end: bool) -> u64 {
        self.find();
        let now = monotonic();
        let mut most = 0;
        let latest: HashMap<u32, u64> = self.rings.keys().copied().collect();
        for (key, mut source) in std::mem::take(&mut self.rings) {
            // Asked before reading: who is gone now writes nothing after.
            let is_over = latest.get(&key.0) != Some(&key.1) || !is_alive(key.0);
            // A file that cannot be read any more is nobody's.
            let Ok(drained) = source.ring.drain(now, is_end || is_over) else {
                self.close(key, source);
                continue;
            };
            most = most.max(drained.behind);
            self.take(key, &mut source, drained, (now, is_end || is_over));
            if is_over {
                self.finish(key, &source, now);
                self.close(key, source);
            } else {
                self.rings.insert(key, source);
            }
        }
        self.children.look(now);
        most
    }

    /// Takes in what one process did.
    fn take(
        &mut self,
        key: (u32, u64),
        source: &mut Source,
        drained: Drained,
        (now, is_end): (u64, bool),
    ) {
        self.stacks.learn(key, &source.path, &drained.events);
        let stacks = &self.stacks;
        let number = |stack| stacks.number(key, stack);
        if drained.lost > 0 {
            let count = drained.lost;
            let lost = aside(&source.feed, now, What::Lost { count });
            self.lookout.take(&lost);
            self.lifetimes.lose(key, &source.path, count, &number);
        }
        let codes = Codes {
            is_python: &|stack| stacks.has(stack, |code| code.is_python),
            is_in_module: &|stack| stacks.has(stack, |code| code.is_in_module),
        };
        let path = &source.path;
        self.lifetimes
            .take(key, path, &drained.events, &number, &codes);
        let process = source.feed.process();
        self.children
            .take(process, (key.1, drained.is_forked), &drained.events, number);
        for (known, count) in source.omissions.iter_mut().zip(drained.omissions) {
            // Of a head that could not be read there is nothing.
            *known = count.max(*known);
        }
        if source.feed.is_first(&drained) && drained.is_forked {
            self.lookout.take(&aside(&source.feed, now, What::Forked));
        }
        source.feed.take(drained);
        let mut number = |stack| self.stacks.number(key, stack);
        while let Some(event) = source.feed.next(now, is_end, &mut number) {
            match source.feed.manner() {
                Manner::InOrder => self.lookout.take(&event),
                Manner::Late => self.lookout.take_late(&event),
                Manner::Prevented => {
                    self.prevented.fetch_add(1, Ordering::Relaxed);
                    self.lookout.take_prevented(&event);
                }
            }
        }
    }

    /// A process is gone: what it wrote down itself is read once more.
    fn finish(&mut self, key: (u32, u64), source: &Source, now: u64) {
        if let Ok(Some(table)) = Table::read(&source.path) {
            let stacks: BTreeSet<u32> = table.accounts.keys().copied().collect();
            self.stacks.learn_from(key, Some(&table), stacks);
            let stacks = &self.stacks;
            let number = |stack| stacks.number(key, stack);
            self.lifetimes.finish(key, &table, now, &number);
        }
        self.lookout.take(&aside(&source.feed, now, What::Exit));
        self.children.end(source.feed.process(), now);
    }

    fn close(&mut self, key: (u32, u64), source: Source) {
        self.stacks.forget(key);
        for (total, count) in self.omissions.iter_mut().zip(source.omissions) {
            *total += count;
        }
        self.over.insert(source.path);
    }

    fn unnamed(&mut self) -> Vec<crate::lifetimes::Unnamed> {
        let rings = &self.rings;
        let file_of = |key| rings.get(&key).map(|source| source.path.clone());
        let stacks = &self.stacks;
        let spots = |stack| stacks.spots_of(stack).to_vec();
        self.lifetimes.unnamed(monotonic(), &file_of, &spots)
    }

    /// Not while its ring is read, and not before it was found.
    fn is_done_with(&self, key: (u32, u64)) -> bool {
        !self.rings.contains_key(&key) && self.over.iter().any(|path| key_of(path) == Some(key))
    }

    /// Looks for processes that are new.
    fn find(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return;
        };
        let paths: BTreeSet<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        // Files of processes that are gone go as well: a build starts thousands.
        self.over.retain(|path| paths.contains(path));
        for path in paths {
            let Some(key) = key_of(&path) else {
                continue;
            };
            if self.rings.contains_key(&key) || self.over.contains(&path) {
                continue;
            }
            if self.rings.len() >= MOST_RINGS {
                self.unheard += 1;
                self.over.insert(path);
                continue;
            }
            let process = ProcKey {
                pid: key.0,
                start_ticks: key.1,
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
        let name = |stack| symbols.name(self.stacks.spots_of(stack));
        self.children.piles(name)
    }

    fn child_origin(&self, pid: u32, symbols: &mut Symbols) -> Option<Origin> {
        let name = |stack| symbols.name(self.stacks.spots_of(stack));
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
            let spots = self.stacks.spots_of(stack);
            symbols.borrow_mut().name(spots)
        };
        let (wall, now) = (Timestamp::now(), monotonic());
        let clock = |at: u64| {
            let ago = Duration::from_nanos(now.saturating_sub(at));
            let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::ZERO);
            wall.checked_sub(ago).unwrap_or(wall)
        };
        let mut hazards = self.lookout.hazards(&resolve, &clock);
        hazards.retain(|hazard| !hazard.is_of_others());
        let mut gaps = self.lookout.gaps();
        gaps.extend(omission::gaps(&self.all_omissions()));
        if self.unheard > 0 {
            gaps.push(Gap::new(
                format!("hazards in {} processes", self.unheard),
                format!("more than {MOST_RINGS} traced processes run at the same time"),
                "trace fewer processes at once",
            ));
        }
        (hazards, gaps)
    }
}

fn aside(feed: &Feed, now: u64, what: What) -> Event {
    Event {
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

/// The stacks of all processes, read when they are first met: their tables may be gone at the end.
#[derive(Debug, Default)]
struct Stacks {
    numbers: HashMap<(u32, u64), HashMap<u32, StackId>>,
    /// Those of thousands of processes of one program are the same few.
    same: HashMap<Vec<Spot>, StackId>,
    spots: Vec<Vec<Spot>>,
    codes: Vec<Code>,
}

impl Stacks {
    /// Reads the stacks that are new among these events.
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
        // One whose table is gone has no frames.
        let table = Table::read(path).ok().flatten();
        self.learn_from((pid, began), table.as_ref(), new);
    }

    fn learn_from(&mut self, key: (u32, u64), table: Option<&Table>, stacks: BTreeSet<u32>) {
        let known = self.numbers.entry(key).or_default();
        for stack in stacks {
            if known.contains_key(&stack) {
                continue;
            }
            let spots = table.map(|table| table.spots(stack)).unwrap_or_default();
            if spots.is_empty() && table.is_some() {
                // Another thread is writing it just now: the next event that names it asks again.
                continue;
            }
            let next = StackId(u32::try_from(self.spots.len()).unwrap_or(u32::MAX));
            let number = *self.same.entry(spots).or_insert_with_key(|spots| {
                self.codes.push(Code::of(spots));
                self.spots.push(spots.clone());
                next
            });
            known.insert(stack, number);
        }
    }

    fn has(&self, number: StackId, what: impl Fn(&Code) -> bool) -> bool {
        let index = usize::try_from(number.0).unwrap_or(usize::MAX);
        self.codes.get(index).is_some_and(what)
    }

    /// Its events were all taken; what they name stays.
    fn forget(&mut self, process: (u32, u64)) {
        self.numbers.remove(&process);
    }

    fn number(&self, (pid, began): (u32, u64), stack: u32) -> StackId {
        let of_process = self.numbers.get(&(pid, began));
        let known = of_process.and_then(|known| known.get(&stack));
        known.copied().unwrap_or(LOST_STACK)
    }

    fn spots_of(&self, number: StackId) -> &[Spot] {
        let known = usize::try_from(number.0)
            .ok()
            .and_then(|index| self.spots.get(index));
        known.map(Vec::as_slice).unwrap_or_default()
    }
}

/// What kind of code is in a stack.
#[derive(Clone, Copy, Debug, Default)]
struct Code {
    is_python: bool,
    /// The outermost level of a Python program or module.
    is_in_module: bool,
}

impl Code {
    fn of(spots: &[Spot]) -> Self {
        let mut code = Self::default();
        for spot in spots {
            if let Spot::Language {
                tongue: fdguard_wire::Tongue::Python,
                function,
                ..
            } = spot
            {
                code.is_python = true;
                code.is_in_module |= function == "<module>";
            }
        }
        code
    }
}

/// Now, by the clock that the injected library uses, in nanoseconds.
#[must_use]
pub fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    let passed = Duration::new(time.tv_sec.unsigned_abs(), nanos);
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
}
