//! What the threads of a kernel trace share: the tracer, the records and the stacks.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use fdguard_core::{Gap, TraceKey};
use fdguard_kernel::{
    CapturedStack, GoProbe, KernelEvent, KernelTracer, LostCounts, Occurrence, StackMode,
};
use fdguard_proc::process;

use super::go_creators::GoCreators;
use super::proc_fds::open_fds;
use super::python::PythonFile;
use super::records::{KernelRecords, ProcessChange};
use super::stack_store::StackStore;
use super::unwind_thread::{KernelLesson, UnwindFailures, UnwindTask, UnwindThread};
use crate::go::GoProgram;
use crate::listener::monotonic;
use crate::ring::DrainedEvents;
use crate::table::ProcessTable;

/// A table that has not changed for this long is compared with `/proc`.
const QUIET: u64 = 200_000_000;
/// The same if it has not been compared for this long: a ring that the kernel polls opens without
/// system calls.
const OLD: u64 = 2_000_000_000;
/// Comparisons take at most this part of the time.
const SHARE: u32 = 20;

/// How long the stacks of ended programs are waited for, besides this part of the time.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_SHARE: u32 = 10;
/// How long the last events, comparisons and stacks may take. What is left is lost, and counted.
const LAST_STEPS: LastSteps = LastSteps {
    events: Duration::from_secs(2),
    checks: Duration::from_secs(1),
    stacks: Duration::from_secs(10),
};
/// The same for a host: somebody waits, and it never stops doing more.
const LAST_STEPS_OF_HOST: LastSteps = LastSteps {
    events: Duration::from_millis(500),
    checks: Duration::from_millis(500),
    stacks: Duration::from_secs(1),
};
/// How long a process is examined before its trace counts as begun.
const LEARNING: Duration = Duration::from_secs(5);
/// How many events are applied before other threads get their turn.
const BATCH: usize = 4096;
/// How many events the hazards and lifetimes may still be told of at the end.
const MOST_AT_END: usize = 1 << 16;
/// The most stacks that wait for their first event.
const MOST_ARRIVED: usize = 4096;

/// How long each step of the end may take.
struct LastSteps {
    events: Duration,
    checks: Duration,
    stacks: Duration,
}

/// A trace by the kernel. Locked in the order of its fields.
#[derive(Debug)]
pub(super) struct KernelTrace {
    /// `None` after the end of the recording.
    reading: Mutex<Reading>,
    records: Mutex<KernelRecords>,
    stacks: Arc<StackStore>,
    unwinding: Mutex<Option<UnwindThread>>,
    failures: Arc<Mutex<UnwindFailures>>,
    began: Instant,
    /// The nanoseconds that were spent waiting for the stacks of ended programs.
    waited: AtomicU64,
    /// It is about to end: nothing new is read, so that the thread that ends it finds no lock taken
    /// for long. Reading a busy host could go on for ever.
    is_ending: AtomicBool,
    /// How many events may still be handed out after that.
    left: AtomicUsize,
}

/// The tracer while it is loaded.
#[derive(Debug)]
struct Reading {
    tracer: Option<KernelTracer>,
    lost: LostCounts,
    /// Stacks whose first event has not come, by number: it says which program they belong to.
    arrived: HashMap<u32, Box<CapturedStack>>,
    /// Processes whose descriptors cannot be listed.
    unlisted: BTreeSet<u32>,
    /// When to compare tables again.
    next_check: Option<Instant>,
    creators: GoCreators,
    /// Processes that opened on goroutines whose creators have to be known.
    needing: BTreeSet<u32>,
    /// Set at the end: what has not been applied by then is lost.
    deadline: Option<Instant>,
}

impl Reading {
    /// Sees only goroutines whose creators are of use.
    fn relieve(&mut self) {
        let Some(tracer) = &mut self.tracer else {
            return;
        };
        for pid in std::mem::take(&mut self.needing) {
            self.creators.need(pid, tracer);
        }
        self.creators.relieve(tracer);
    }
}

impl KernelTrace {
    pub(super) fn new(tracer: KernelTracer) -> Self {
        Self {
            reading: Mutex::new(Reading {
                tracer: Some(tracer),
                lost: LostCounts::default(),
                arrived: HashMap::new(),
                unlisted: BTreeSet::new(),
                next_check: None,
                creators: GoCreators::default(),
                needing: BTreeSet::new(),
                deadline: None,
            }),
            records: Mutex::new(KernelRecords::new(std::process::id())),
            stacks: Arc::default(),
            unwinding: Mutex::new(None),
            failures: Arc::default(),
            began: Instant::now(),
            waited: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            left: AtomicUsize::new(MOST_AT_END),
        }
    }

    /// Starts the thread that unwinds.
    pub(super) fn start_unwinding(self: &Arc<Self>) -> io::Result<()> {
        let trace = Arc::downgrade(self);
        let learn = move |lesson: KernelLesson<'_>| {
            if let Some(trace) = trace.upgrade() {
                trace.learn(lesson);
            }
        };
        let failures = Arc::clone(&self.failures);
        let thread = UnwindThread::start(Arc::clone(&self.stacks), failures, learn)?;
        *lock(&self.unwinding) = Some(thread);
        Ok(())
    }

    pub(super) fn records(&self) -> MutexGuard<'_, KernelRecords> {
        lock(&self.records)
    }

    /// Tells the kernel what the unwinder has found out.
    fn learn(&self, lesson: KernelLesson<'_>) {
        if self.is_ending() {
            return;
        }
        let reading = &mut *lock(&self.reading);
        let Some(tracer) = &mut reading.tracer else {
            return;
        };
        if let KernelLesson::Mode(pid, _) | KernelLesson::Go(pid, _) | KernelLesson::Python(pid, _) =
            lesson
            && self.records().current(pid).is_none()
        {
            return;
        }
        let creators = &mut reading.creators;
        // Without it, stacks are copied more often than necessary.
        drop(match lesson {
            KernelLesson::Stack(number, slots) => tracer.remember(number, slots),
            KernelLesson::Mode(pid, mode) => tracer.follow(pid, mode),
            KernelLesson::Go(pid, program) => {
                let probe = self.probe(tracer, program);
                if let Some(probe) = probe {
                    creators.add(pid, probe);
                }
                match program.probe {
                    Some((layout, _)) => tracer.follow_go(pid, layout, probe),
                    None => Ok(()),
                }
            }
            KernelLesson::Creators(pid) => {
                creators.need(pid, tracer);
                Ok(())
            }
            KernelLesson::Python(pid, found) => {
                let file = &found.file;
                // The kernel recognises it by itself in processes that are started later.
                drop(tracer.add_python_file(file.device, file.inode, &file.layout));
                tracer.set_python(pid, &found.layout)
            }
        });
    }

    /// New goroutines of this program are seen from now on.
    pub(super) fn expect_go(&self, program: &GoProgram) {
        if let Some(tracer) = &mut lock(&self.reading).tracer {
            self.probe(tracer, program);
        }
    }

    fn probe(&self, tracer: &mut KernelTracer, program: &GoProgram) -> Option<GoProbe> {
        let probed = match program.probe {
            None => Err(format!(
                "its goroutines are not known ({})",
                program.version
            )),
            Some((layout, offset)) => tracer
                .probe_go(&program.file, offset, layout)
                .map_err(|error| format!("the kernel does not allow it ({error})")),
        };
        match probed {
            Ok(probe) => Some(probe),
            Err(reason) => {
                lock(&self.failures).unprobed.insert(reason);
                None
            }
        }
    }

    /// The kernel recognises the Python in this file from now on.
    pub(super) fn add_python_file(&self, file: &PythonFile) {
        if let Some(tracer) = &lock(&self.reading).tracer {
            // Without it the Python is found a moment later.
            drop(tracer.add_python_file(file.device, file.inode, &file.layout));
        }
    }

    /// Begins to trace a running process.
    pub(super) fn follow(&self, pid: u32) -> io::Result<()> {
        let mut reading = lock(&self.reading);
        let Some(tracer) = &reading.tracer else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        // The number of a process that is gone could be given to another one.
        let is_alive = process::stat(pid, |stat| !stat.is_zombie());
        match is_alive {
            Ok(true) => {}
            Ok(false) => return Err(io::Error::other("the process has ended (zombie)")),
            Err(_) => return Err(io::Error::other("no such process")),
        }
        tracer.follow(pid, StackMode::Copied)?;
        // No event is applied between the look and its use: those before it are in what was seen,
        // those after it change it.
        let mut records = self.records();
        records.ensure(pid, monotonic());
        self.note_changes(&mut reading, &mut records);
        drop(records);
        drop(reading);
        self.wait_until_known();
        Ok(())
    }

    /// Waits until the kernel knows what the followed processes run. Before that, what a Python or
    /// Go program opens has no line of its language.
    fn wait_until_known(&self) {
        let (waiting, reached) = mpsc::channel();
        self.send(UnwindTask::Reached(waiting));
        // Nothing is ever sent: the other end is dropped.
        let _reached = reached.recv_timeout(LEARNING);
    }

    /// Whether programs that fdguard starts are traced.
    pub(super) fn follow_own(&self, is_followed: bool) -> io::Result<()> {
        let reading = lock(&self.reading);
        let own = std::process::id();
        match &reading.tracer {
            Some(tracer) if is_followed => tracer.follow(own, StackMode::None),
            Some(tracer) => tracer.unfollow(own),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The trace is about to end: its threads read nothing more, and wait for nothing.
    pub(super) fn end_soon(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Applies all events that have happened; returns how many.
    pub(super) fn drain(&self) -> usize {
        if self.is_ending() {
            return 0;
        }
        let mut reading = lock(&self.reading);
        self.drain_locked(&mut reading)
    }

    fn drain_locked(&self, reading: &mut Reading) -> usize {
        let Some(end) = reading.tracer.as_ref().map(KernelTracer::position) else {
            return 0;
        };
        let (mut count, mut dropped) = (0, 0);
        while let Some(tracer) = &mut reading.tracer {
            match reading.deadline {
                Some(deadline) if Instant::now() > deadline => {
                    dropped = tracer.skip(end) as u64;
                    break;
                }
                // The thread that ends the trace reads the rest.
                None if self.is_ending() => break,
                _ => {}
            }
            let mut events = Vec::new();
            let read = tracer.drain_some(end, BATCH, &mut |event| events.push(event));
            let mut records = self.records();
            for event in events {
                self.apply(event, reading, &mut records);
            }
            count += read;
            if read < BATCH {
                break;
            }
        }
        self.note_lost(reading, dropped);
        count
    }

    /// Counts what the kernel lost, and what was dropped.
    fn note_lost(&self, reading: &mut Reading, dropped: u64) {
        let Some(tracer) = &reading.tracer else {
            return;
        };
        let lost = tracer.lost();
        let newly = lost.events.saturating_sub(reading.lost.events) + dropped;
        reading.lost = lost;
        if newly > 0 {
            self.records().lose(newly);
            reading.next_check = None;
        }
    }

    fn apply(&self, event: KernelEvent, reading: &mut Reading, records: &mut KernelRecords) {
        if let Occurrence::Stack(stack) = event.what {
            if reading.arrived.len() >= MOST_ARRIVED {
                // Their events are lost.
                reading.arrived.clear();
            }
            reading.arrived.insert(stack.number, stack);
            return;
        }
        if let Occurrence::PythonCode(code) = event.what {
            self.send(UnwindTask::Code(code));
            return;
        }
        if let Occurrence::Mapped(file) = event.what {
            if let Some(key) = records.current(event.pid) {
                self.send(UnwindTask::Mapped(key, file));
            }
            return;
        }
        if reading.creators.has(event.pid) && self.stacks.needs_creators(event.stack) {
            reading.needing.insert(event.pid);
        }
        let stack = reading.arrived.remove(&event.stack);
        if let Some(stack) = &stack {
            self.stacks.expect(stack.number);
        }
        records.apply(&event);
        self.note_changes(reading, records);
        if let Some(stack) = stack {
            match records.current(event.pid) {
                Some(key) => self.send(UnwindTask::Stack(key, stack)),
                None => self.stacks.insert(stack.number, Vec::new()),
            }
        }
    }

    fn send(&self, task: UnwindTask) {
        if let Some(thread) = &*lock(&self.unwinding) {
            thread.send(task);
        }
    }

    /// Reads what the events do not say about new processes.
    fn note_changes(&self, reading: &mut Reading, records: &mut KernelRecords) {
        for change in records.take_changes() {
            match change {
                ProcessChange::Found(key) => {
                    match open_fds(key.pid) {
                        Ok(open) => records.add_before(key, open),
                        Err(error) => {
                            // Any other error means that it has ended.
                            if error.kind() == io::ErrorKind::PermissionDenied {
                                reading.unlisted.insert(key.pid);
                            }
                            records.add_before(key, []);
                        }
                    }
                    name(records, key);
                }
                ProcessChange::Executed(key) => name(records, key),
                ProcessChange::Over(key) => reading.creators.forget(key.pid),
                ProcessChange::Forked { .. } => {}
            }
            self.send(UnwindTask::Change(change));
        }
    }

    /// Compares the tables of processes that do nothing with what is open in them.
    pub(super) fn reconcile(&self) {
        if self.is_ending() {
            return;
        }
        let mut reading = lock(&self.reading);
        let began = Instant::now();
        if reading.next_check.is_some_and(|next| began < next) {
            return;
        }
        reading.relieve();
        let now = monotonic();
        let due = self
            .records()
            .unchecked(now.saturating_sub(QUIET), now.saturating_sub(OLD));
        let until = began + Duration::from_millis(50);
        for pid in due {
            self.check(pid, &mut reading);
            if Instant::now() > until || self.is_ending() {
                break;
            }
        }
        let pause = (began.elapsed() * SHARE).max(Duration::from_nanos(QUIET / 2));
        reading.next_check = Some(Instant::now() + pause);
    }

    /// Compares one table, if nothing happens to it meanwhile.
    fn check(&self, pid: u32, reading: &mut Reading) {
        if reading.unlisted.contains(&pid) {
            return;
        }
        let open = open_fds(pid);
        let at = monotonic();
        let before = self.records().changed(pid);
        self.drain_locked(reading);
        let mut records = self.records();
        if records.changed(pid) != before {
            return;
        }
        match open {
            Ok(open) => {
                records.reconcile(pid, &open, at);
            }
            // Its end was not reported.
            Err(error) if error.kind() == io::ErrorKind::NotFound => records.end(pid),
            Err(_) => {
                reading.unlisted.insert(pid);
            }
        }
    }

    /// Waits until the stacks of an ended program were unwound. On a host where thousands end, all
    /// these waits together are a small part of the time.
    pub(super) fn wait_for_stacks(&self, key: TraceKey) {
        let pending = self.records().pending(key, &self.stacks);
        if pending.is_empty() || self.is_ending() {
            return;
        }
        let began = Instant::now();
        let waited = Duration::from_nanos(self.waited.load(Ordering::Relaxed));
        let most = PATIENCE + self.began.elapsed() / PATIENCE_SHARE;
        self.stacks
            .wait_for(&pending, most.saturating_sub(waited).min(PATIENCE));
        let spent = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waited.fetch_add(spent, Ordering::Relaxed);
    }

    pub(super) fn take_events(&self, key: TraceKey, is_end: bool) -> Option<DrainedEvents> {
        let mut records = self.records();
        if self.is_ending() {
            let waiting = records.waiting(key);
            let fits = |left: usize| left.checked_sub(waiting);
            let is_room = self
                .left
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
            if is_room.is_err() {
                records.drop_waiting(key);
            }
        }
        records.drain(key, &self.stacks, is_end)
    }

    pub(super) fn table(&self, key: TraceKey) -> Option<ProcessTable> {
        self.records().table(key, &self.stacks)
    }

    /// Ends the recording: what has happened is applied, as far as there is time, and the kernel's
    /// programs are removed.
    pub(super) fn stop(&self) {
        let was_ending = self.is_ending.swap(true, Ordering::AcqRel);
        let mut reading = lock(&self.reading);
        if reading.tracer.is_none() {
            return;
        }
        let most = match was_ending {
            true => LAST_STEPS_OF_HOST,
            false => LAST_STEPS,
        };
        reading.deadline = Some(Instant::now() + most.events);
        self.drain_locked(&mut reading);
        let until = Instant::now() + most.checks;
        let running = self.records().pids();
        for pid in running {
            self.check(pid, &mut reading);
            if Instant::now() > until {
                break;
            }
        }
        reading.tracer = None;
        drop(reading);
        self.stacks.wait(most.stacks);
        let unwinding = lock(&self.unwinding).take();
        if let Some(unwinding) = unwinding {
            unwinding.give_up();
        }
    }

    /// What was not seen.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        let (lost, unlisted) = {
            let reading = lock(&self.reading);
            (reading.lost, reading.unlisted.clone())
        };
        let unseen = self.records().unseen();
        let failures = lock(&self.failures);
        super::gaps::gaps(&super::gaps::Unseen {
            unseen,
            lost,
            unlisted: &unlisted,
            failures: &failures,
        })
    }
}

fn name(records: &mut KernelRecords, key: TraceKey) {
    if let Some(comm) = process::name(key.pid) {
        records.name(key, comm);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
