//! State that the checks need beyond the ledger: which thread is in a call, which line works on
//! whose descriptors, locks, and closes that a signal interrupted. All of it is bounded; forgetting
//! makes a check report less, never more.

use std::collections::BTreeMap;

use super::overlap::{Busy, BusyThreads};
use crate::event::{Errno, FdCall, StackId, Tid, TraceEvent, What};
use crate::ledger::{Actor, FdLifetime, FdSlot, Generation, Ledger};
use crate::{Fd, FileId, TraceKey};

/// The most threads, pairs of sites and files that are remembered each; beyond that, all are
/// dropped.
const MOST: usize = 16_384;

/// The most numbers of one `poll` that are remembered.
const MOST_POLLED: usize = 256;

/// The most locked ranges of one file that are remembered.
const MOST_RANGES: usize = 256;

/// A call that a thread is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    pub(super) fd: Fd,
    pub(super) generation: Option<Generation>,
    pub(super) call: FdCall,
    pub(super) actor: Actor,
}

/// A close that failed with `EINTR`.
#[derive(Clone, Debug)]
pub(super) struct Interrupted {
    pub(super) fd: Fd,
    pub(super) actor: Actor,
    pub(super) life: Option<FdLifetime>,
}

/// The POSIX locks of one process on one file.
#[derive(Clone, Debug)]
pub(super) struct Locks {
    /// The number and generation that the latest was taken through.
    pub(super) fd: Fd,
    pub(super) generation: Generation,
    pub(super) actor: Actor,
    /// Whether several threads took locks.
    pub(super) is_shared: bool,
    ranges: Vec<(u64, u64)>,
}

/// How many descriptors of one origin a line worked on.
#[derive(Clone, Copy, Debug, Default)]
struct Habit {
    count: u32,
    latest: Generation,
}

type Habits = BTreeMap<(StackId, StackId), Habit>;

/// What a use says about the habits of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UseStanding {
    /// The thread may own what it uses.
    Proper,
    /// It meant an earlier descriptor of the number.
    Stale,
    /// Its own descriptor of the number was closed by an unrelated thread, and this is another one.
    Orphan,
}

/// The memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    inside: BTreeMap<(TraceKey, Tid), Vec<Inside>>,
    interrupted: BTreeMap<(TraceKey, Tid), Interrupted>,
    /// What the last use of each thread missed that failed for lack of a descriptor.
    missed: BTreeMap<(TraceKey, Tid), (Fd, Generation)>,
    locks: BTreeMap<(TraceKey, FileId), Locks>,
    /// Where the first lock through a descriptor was taken.
    lock_stacks: BTreeMap<(TraceKey, Fd, Generation), StackId>,
    busy: BusyThreads,
    /// How many unlocks and closes there were, and the last one of each file.
    releases: u64,
    last_release: BTreeMap<(TraceKey, FileId), u64>,
    uses: Habits,
    /// Uses in place of a descriptor that was taken from the thread.
    orphan_uses: Habits,
    closes: Habits,
    /// The first thread of each process, and whether there were others.
    threads: BTreeMap<TraceKey, (Tid, bool)>,
}

impl Memory {
    /// Calls of other threads on this descriptor that are in progress.
    pub(super) fn others_inside<'a>(
        &'a self,
        event: &'a TraceEvent,
        ledger: &'a Ledger,
        fd: Fd,
    ) -> impl Iterator<Item = &'a Inside> {
        let process = event.process;
        let current = ledger.slot(process, fd).and_then(FdSlot::current);
        let same = move |inside: &&Inside| {
            let is_before = inside.actor.at <= event.at;
            let generation = current.map(|life| life.generation);
            inside.fd == fd && is_before && inside.generation == generation
        };
        let others = self.inside.iter().filter(move |((of, thread), _)| {
            let is_here = *of == process || ledger.share_table(*of, process);
            is_here && (*of, *thread) != (process, event.thread)
        });
        others.flat_map(|(_, calls)| calls).filter(same)
    }

    /// The call on this number that the event's thread is in.
    pub(super) fn entered(&self, event: &TraceEvent, fd: Fd) -> Option<&Inside> {
        let calls = self.inside.get(&(event.process, event.thread))?;
        calls.iter().find(|inside| inside.fd == fd)
    }

    /// A close by this thread that a signal interrupted just before.
    pub(super) fn interrupted(
        &self,
        process: TraceKey,
        thread: Tid,
        fd: Fd,
    ) -> Option<&Interrupted> {
        let found = self.interrupted.get(&(process, thread));
        found.filter(|one| one.fd == fd)
    }

    /// Whether the thread's last failed use was of this number, after this descriptor was closed.
    pub(super) fn has_missed(&self, by: (TraceKey, Tid), fd: Fd, generation: Generation) -> bool {
        self.missed.get(&by) == Some(&(fd, generation))
    }

    pub(super) fn locks(&self, process: TraceKey, file: FileId) -> Option<&Locks> {
        self.locks.get(&(process, file))
    }

    /// The other threads that are changing a lock of this file.
    pub(super) fn others_locking(&self, event: &TraceEvent, file: FileId) -> Vec<Tid> {
        let is_locking =
            |busy: &Busy| matches!(busy, Busy::Locking { file: of, .. } if *of == file);
        self.others_busy(event, is_locking).collect()
    }

    fn others_busy(
        &self,
        event: &TraceEvent,
        is_it: impl Fn(&Busy) -> bool,
    ) -> impl Iterator<Item = Tid> {
        let (process, thread) = (event.process, event.thread);
        let all = self.busy.range((process, 0)..=(process, Tid::MAX));
        all.filter(move |((_, other), busy)| *other != thread && is_it(busy))
            .map(|((_, other), _)| *other)
    }

    /// Whether the process of this event has had another thread so far.
    pub(super) fn is_threaded(&self, event: &TraceEvent) -> bool {
        let known = self.threads.get(&event.process);
        known.is_some_and(|(first, has_others)| *has_others || *first != event.thread)
    }

    /// How many descriptors from `opener` the line `user` worked on properly.
    pub(super) fn uses(&self, user: Option<StackId>, opener: Option<StackId>) -> u32 {
        count(&self.uses, user, opener)
    }

    /// How many descriptors from `opener` the line `user` reached in place of one of its thread's
    /// own, which an unrelated thread had closed.
    pub(super) fn orphan_uses(&self, user: Option<StackId>, opener: Option<StackId>) -> u32 {
        count(&self.orphan_uses, user, opener)
    }

    /// How many descriptors from `opener` the line `closer` closed, correctly or a second time.
    pub(super) fn closes(&self, closer: Option<StackId>, opener: Option<StackId>) -> u32 {
        count(&self.closes, closer, opener)
    }

    /// Notes a close of something already closed: this line works on descriptors of that origin.
    pub(super) fn note_close(&mut self, closer: Option<StackId>, life: &FdLifetime) {
        note(&mut self.closes, closer, life);
    }

    /// Takes an event, with the ledger as it was before.
    pub(super) fn apply(&mut self, event: &TraceEvent, ledger: &Ledger, standing: UseStanding) {
        let by = (event.process, event.thread);
        let current = |fd: Fd| ledger.slot(event.process, fd).and_then(FdSlot::current);
        self.note_thread(event);
        let mut was_busy = None;
        if !matches!(event.what, What::Enter { .. }) {
            self.inside.remove(&by);
            was_busy = self.busy.remove(&by);
        }
        if let Some(Busy::Closing(file)) = was_busy {
            self.note_release((event.process, file));
        }
        match &event.what {
            What::Enter { fd, call } => self.enter(event, current(*fd), *fd, *call),
            What::Open { fd, .. } => self.forget_interrupted(by, *fd),
            What::Use { fd, errno, .. } => {
                self.forget_interrupted(by, *fd);
                if let Some(life) = current(*fd).filter(|_| errno.is_none()) {
                    self.note_use(event.stack, life, standing);
                }
                if *errno == Some(Errno::Ebadf) {
                    self.note_missed(by, *fd, ledger.slot(event.process, *fd));
                }
            }
            What::Close { fd, errno, .. } => self.close(event, current(*fd), *fd, *errno),
            What::CloseRange {
                first,
                last,
                at_exec: false,
            } => {
                let numbers = *first..=*last;
                let closed = ledger
                    .live(event.process)
                    .filter(|(fd, _)| numbers.contains(fd));
                for file in closed.filter_map(|(_, life)| life.file) {
                    self.locks.remove(&(event.process, file));
                }
            }
            What::Lock { .. } => self.lock(event, ledger, was_busy),
            What::Locking { fd } => {
                if let Some(file) = current(*fd).and_then(|life| life.file) {
                    make_room(&mut self.busy);
                    let releases = self.releases;
                    self.busy.insert(by, Busy::Locking { file, releases });
                }
            }
            What::Exec { .. } => {
                self.forget_threads(event.process);
                self.threads.remove(&event.process);
            }
            What::Exit | What::Lost { .. } | What::Missing => {
                self.forget_threads(event.process);
                self.locks
                    .retain(|(process, _), _| *process != event.process);
                self.lock_stacks
                    .retain(|(process, ..), _| *process != event.process);
                self.last_release
                    .retain(|(process, _), _| *process != event.process);
            }
            _ => {}
        }
    }

    fn note_use(&mut self, line: Option<StackId>, life: &FdLifetime, standing: UseStanding) {
        match standing {
            UseStanding::Proper => note(&mut self.uses, line, life),
            UseStanding::Orphan => note(&mut self.orphan_uses, line, life),
            UseStanding::Stale => {}
        }
    }

    fn note_missed(&mut self, by: (TraceKey, Tid), fd: Fd, slot: Option<&FdSlot>) {
        let free = slot.filter(|slot| slot.current().is_none());
        if let Some(past) = free.and_then(|slot| slot.past().next()) {
            make_room(&mut self.missed);
            self.missed.insert(by, (fd, past.life.generation));
        }
    }

    fn note_thread(&mut self, event: &TraceEvent) {
        match event.what {
            What::Exit => {
                self.threads.remove(&event.process);
            }
            // Emitted by the tracer, not by a thread.
            What::Lost { .. } | What::Missing => {}
            _ => {
                if !self.threads.contains_key(&event.process) {
                    make_room(&mut self.threads);
                }
                let first = (event.thread, false);
                let (first, has_others) = self.threads.entry(event.process).or_insert(first);
                *has_others |= *first != event.thread || event.what == What::Threaded;
            }
        }
        if let What::Fork {
            child,
            shares_table: true,
        } = event.what
        {
            for process in [event.process, child] {
                self.threads.insert(process, (event.thread, true));
            }
        }
    }

    fn enter(&mut self, event: &TraceEvent, life: Option<&FdLifetime>, fd: Fd, call: FdCall) {
        make_room(&mut self.inside);
        let calls = self
            .inside
            .entry((event.process, event.thread))
            .or_default();
        // Several at once are the numbers of one poll; anything else means that a Leave is missing.
        if calls
            .last()
            .is_some_and(|last| last.call != FdCall::Poll || call != FdCall::Poll)
        {
            calls.clear();
        }
        if calls.len() < MOST_POLLED {
            calls.push(Inside {
                fd,
                generation: life.map(|life| life.generation),
                call,
                actor: actor(event),
            });
        }
    }

    fn close(
        &mut self,
        event: &TraceEvent,
        life: Option<&FdLifetime>,
        fd: Fd,
        errno: Option<Errno>,
    ) {
        let by = (event.process, event.thread);
        self.interrupted.remove(&by);
        if errno == Some(Errno::Eintr) {
            make_room(&mut self.interrupted);
            let interrupted = Interrupted {
                fd,
                actor: actor(event),
                life: life.cloned(),
            };
            self.interrupted.insert(by, interrupted);
        }
        let Some(life) = life.filter(|_| errno != Some(Errno::Ebadf)) else {
            return;
        };
        if let Some(file) = life.file {
            self.locks.remove(&(event.process, file));
            make_room(&mut self.busy);
            self.busy.insert(by, Busy::Closing(file));
        }
        if !life.is_strange_to(event.thread) {
            note(&mut self.closes, event.stack, life);
        }
    }

    /// The thread uses a new descriptor at this number.
    fn forget_interrupted(&mut self, by: (TraceKey, Tid), fd: Fd) {
        if self.interrupted.get(&by).is_some_and(|one| one.fd == fd) {
            self.interrupted.remove(&by);
        }
    }

    fn lock(&mut self, event: &TraceEvent, ledger: &Ledger, was_busy: Option<Busy>) {
        let What::Lock {
            fd,
            file,
            range,
            taken,
        } = &event.what
        else {
            return;
        };
        let life = ledger.slot(event.process, *fd).and_then(FdSlot::current);
        let Some((life, file)) = life.and_then(|life| Some((life, (*file).or(life.file)?))) else {
            return;
        };
        let key = (event.process, file);
        let range = range.unwrap_or((0, u64::MAX));
        if *taken {
            let taken_at = (event.process, *fd, life.generation);
            if let Some(stack) = event.stack {
                make_room(&mut self.lock_stacks);
                self.lock_stacks.entry(taken_at).or_insert(stack);
            }
            if self.is_doubtful(event, file, was_busy) {
                return;
            }
            // A database locks at every statement, and the tracer takes only the stack of the first
            // lock.
            let actor = Actor {
                stack: event
                    .stack
                    .or_else(|| self.lock_stacks.get(&taken_at).copied()),
                ..actor(event)
            };
            make_room(&mut self.locks);
            let locks = self.locks.entry(key).or_insert_with(|| Locks {
                fd: *fd,
                generation: life.generation,
                actor,
                is_shared: false,
                ranges: Vec::new(),
            });
            locks.is_shared |= locks.actor.thread != event.thread;
            (locks.fd, locks.generation) = (*fd, life.generation);
            if actor.stack.is_some() || locks.actor.stack.is_none() {
                locks.actor = actor;
            }
            locks.release(range);
            locks.ranges.push(range);
            locks.ranges.truncate(MOST_RANGES);
            return;
        }
        self.note_release(key);
        if let Some(locks) = self.locks.get_mut(&key) {
            locks.release(range);
            if locks.ranges.is_empty() {
                self.locks.remove(&key);
            }
        }
    }

    /// A call has returned that released locks of this file, or closed a descriptor of it.
    fn note_release(&mut self, key: (TraceKey, FileId)) {
        self.releases += 1;
        make_room(&mut self.last_release);
        self.last_release.insert(key, self.releases);
    }

    /// Whether a lock that was just taken may already be gone: another thread's close of the file
    /// is in progress, or another thread closed one or released a lock while this one was being
    /// taken.
    fn is_doubtful(&self, event: &TraceEvent, file: FileId, was_busy: Option<Busy>) -> bool {
        let is_closing = |busy: &Busy| *busy == Busy::Closing(file);
        let began = match was_busy {
            Some(Busy::Locking { releases, .. }) => releases,
            _ => self.releases,
        };
        let last = self.last_release.get(&(event.process, file));
        last.is_some_and(|last| *last > began)
            || self.others_busy(event, is_closing).next().is_some()
    }

    fn forget_threads(&mut self, process: TraceKey) {
        self.inside.retain(|(of, _), _| *of != process);
        self.interrupted.retain(|(of, _), _| *of != process);
        self.missed.retain(|(of, _), _| *of != process);
        self.busy.retain(|(of, _), _| *of != process);
    }
}

impl Locks {
    fn release(&mut self, (start, end): (u64, u64)) {
        let cut = |(from, to): (u64, u64)| [(from, to.min(start)), (from.max(end), to)];
        let left = self.ranges.iter().copied().flat_map(cut);
        self.ranges = left
            .filter(|(from, to)| from < to)
            .take(MOST_RANGES)
            .collect();
    }
}

fn actor(event: &TraceEvent) -> Actor {
    Actor {
        thread: event.thread,
        stack: event.stack,
        at: event.at,
    }
}

fn count(habits: &Habits, line: Option<StackId>, opener: Option<StackId>) -> u32 {
    let habit = line.zip(opener).and_then(|pair| habits.get(&pair));
    habit.map_or(0, |habit| habit.count)
}

fn note(habits: &mut Habits, line: Option<StackId>, life: &FdLifetime) {
    let Some(pair) = line.zip(life.stack()) else {
        return;
    };
    make_room(habits);
    let habit = habits.entry(pair).or_default();
    if habit.count == 0 || habit.latest != life.generation {
        habit.count = habit.count.saturating_add(1);
        habit.latest = life.generation;
    }
}

fn make_room<K: Ord, V>(map: &mut BTreeMap<K, V>) {
    if map.len() >= MOST {
        map.clear();
    }
}
