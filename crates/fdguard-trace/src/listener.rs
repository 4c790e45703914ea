//! Reads the events of every traced process while they happen, and looks out for hazards.
//!
//! One thread, which wakes up more often the more there is to read: a ring holds some tens of milliseconds of the fastest program.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fdguard_core::event::{Collected, Event, StackId, What};
use fdguard_core::hazard::{Hazard, Lookout};
use fdguard_core::origin::Stack;
use fdguard_core::{Gap, ProcKey};
use fdguard_wire::EVENTS;
use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};

use crate::feed::{Feed, Manner};
use crate::observe::is_alive;
use crate::ring::Ring;
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
    stacks: Stacks,
    prevented: Arc<AtomicU64>,
    unheard: u64,
}

#[derive(Debug)]
struct Source {
    path: PathBuf,
    ring: Ring,
    feed: Feed,
}

impl Heard {
    fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            rings: BTreeMap::new(),
            over: BTreeSet::new(),
            lookout: Lookout::new(Collected::ALL),
            stacks: Stacks::default(),
            prevented: Arc::default(),
            unheard: 0,
        }
    }

    /// Reads all that is new; gives how much of the fullest ring was in use.
    fn look(&mut self, is_end: bool) -> u64 {
        self.find();
        let now = monotonic();
        let mut most = 0;
        let mut ended = Vec::new();
        let latest: HashMap<u32, u64> = self.rings.keys().copied().collect();
        for (key, source) in &mut self.rings {
            // Asked before reading: who is gone now writes nothing after.
            let is_over = latest.get(&key.0) != Some(&key.1) || !is_alive(key.0);
            // A file that cannot be read any more is nobody's.
            let Ok(drained) = source.ring.drain(now, is_end || is_over) else {
                ended.push(*key);
                continue;
            };
            most = most.max(drained.behind);
            if drained.lost > 0 {
                self.lookout.take(&aside(
                    &source.feed,
                    now,
                    What::Lost {
                        count: drained.lost,
                    },
                ));
            }
            self.stacks.learn(*key, &source.path, &drained.events);
            source.feed.take(drained);
            let mut number = |stack| self.stacks.number(*key, stack);
            while let Some(event) = source.feed.next(now, is_end || is_over, &mut number) {
                match source.feed.manner() {
                    Manner::InOrder => self.lookout.take(&event),
                    Manner::Late => self.lookout.take_late(&event),
                    Manner::Prevented => {
                        self.prevented.fetch_add(1, Ordering::Relaxed);
                        self.lookout.take_prevented(&event);
                    }
                }
            }
            if is_over {
                self.lookout.take(&aside(&source.feed, now, What::Exit));
                ended.push(*key);
            }
        }
        for key in ended {
            self.stacks.forget(key);
            if let Some(source) = self.rings.remove(&key) {
                self.over.insert(source.path);
            }
        }
        most
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
                self.rings.insert(key, Source { path, ring, feed });
            }
        }
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
        let hazards = self.lookout.hazards(&resolve, &clock);
        let mut gaps = self.lookout.gaps();
        if self.unheard > 0 {
            gaps.push(Gap::new(
                format!("hazards of {} processes", self.unheard),
                format!("more than {MOST_RINGS} run at the same time"),
                "trace fewer of them at once",
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
        for stack in new {
            let spots = table
                .as_ref()
                .map(|table| table.spots(stack))
                .unwrap_or_default();
            let next = StackId(u32::try_from(self.spots.len()).unwrap_or(u32::MAX));
            let number = *self.same.entry(spots).or_insert_with_key(|spots| {
                self.spots.push(spots.clone());
                next
            });
            known.insert(stack, number);
        }
    }

    /// Its events were all taken; what they name stays.
    fn forget(&mut self, process: (u32, u64)) {
        self.numbers.remove(&process);
    }

    fn number(&self, (pid, began): (u32, u64), stack: u32) -> StackId {
        let of_process = self.numbers.get(&(pid, began));
        let known = of_process.and_then(|known| known.get(&stack));
        known.copied().unwrap_or(StackId(u32::MAX))
    }

    fn spots_of(&self, number: StackId) -> &[Spot] {
        let known = usize::try_from(number.0)
            .ok()
            .and_then(|index| self.spots.get(index));
        known.map(Vec::as_slice).unwrap_or_default()
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
