//! What the threads of a kernel trace share: the tracer, the records and the stacks.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use fdguard_core::{Gap, TraceKey};
use fdguard_kernel::{KernelEvent, KernelTracer, LostCounts, Occurrence};
use fdguard_proc::process;

use super::proc_fds::open_fds;
use super::python::{FoundPython, PythonFile};
use super::records::{KernelRecords, ProcessChange};
use super::stack_store::StackStore;
use super::unwind_thread::{KernelLink, KnownStack, UnwindFailures, UnwindTask, UnwindThread};
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

/// A trace by the kernel. Locked in the order of its fields.
#[derive(Debug)]
pub(super) struct KernelTrace {
    /// `None` after the end of the recording.
    reading: Mutex<Reading>,
    records: Mutex<KernelRecords>,
    stacks: Arc<StackStore>,
    unwinding: Mutex<Option<UnwindThread>>,
    failures: Arc<Mutex<UnwindFailures>>,
}

/// The tracer while it is loaded.
#[derive(Debug)]
struct Reading {
    tracer: Option<KernelTracer>,
    lost: LostCounts,
    /// Processes whose descriptors cannot be listed.
    unlisted: BTreeSet<u32>,
    /// When to compare tables again.
    next_check: Option<Instant>,
}

impl KernelTrace {
    pub(super) fn new(tracer: KernelTracer) -> Self {
        Self {
            reading: Mutex::new(Reading {
                tracer: Some(tracer),
                lost: LostCounts::default(),
                unlisted: BTreeSet::new(),
                next_check: None,
            }),
            records: Mutex::new(KernelRecords::new(std::process::id())),
            stacks: Arc::default(),
            unwinding: Mutex::new(None),
            failures: Arc::default(),
        }
    }

    /// Starts the thread that unwinds.
    pub(super) fn start_unwinding(self: &Arc<Self>) -> io::Result<()> {
        let link = TraceLink(Arc::downgrade(self));
        let failures = Arc::clone(&self.failures);
        let thread = UnwindThread::start(Arc::clone(&self.stacks), failures, link)?;
        *lock(&self.unwinding) = Some(thread);
        Ok(())
    }

    pub(super) fn records(&self) -> MutexGuard<'_, KernelRecords> {
        lock(&self.records)
    }

    /// The kernel recognises this stack from now on and does not copy it again.
    fn remember(&self, _number: u32, _slots: &[(u32, u64)]) {}

    /// The kernel walks the Python frames of a process from now on, and of those that map the file
    /// later.
    fn set_python(&self, pid: u32, found: &FoundPython) {
        if let Some(tracer) = &lock(&self.reading).tracer {
            // Without it their frames are native, which is a gap and no failure.
            drop(tracer.set_python(pid, &found.layout));
        }
        self.add_python_file(&found.file);
    }

    /// The kernel recognises the interpreter in this file from now on.
    pub(super) fn add_python_file(&self, file: &PythonFile) {
        if let Some(tracer) = &lock(&self.reading).tracer {
            // Without it they are found a moment later.
            drop(tracer.add_python_file(file.device, file.inode, &file.layout));
        }
    }

    /// Begins to trace a running process.
    pub(super) fn follow(&self, pid: u32) -> io::Result<()> {
        let mut reading = lock(&self.reading);
        let Some(tracer) = &reading.tracer else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        tracer.follow(pid)?;
        // No event is applied between the look and its use: those before it are in what was seen,
        // those after it change it.
        let mut records = self.records();
        records.ensure(pid, monotonic());
        self.note_changes(&mut reading, &mut records);
        Ok(())
    }

    /// Whether programs that fdguard starts are traced.
    pub(super) fn follow_own(&self, is_followed: bool) -> io::Result<()> {
        let reading = lock(&self.reading);
        let own = std::process::id();
        match &reading.tracer {
            Some(tracer) if is_followed => tracer.follow(own),
            Some(tracer) => tracer.unfollow(own),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Applies all events that have happened; returns how many.
    pub(super) fn drain(&self) -> usize {
        let mut reading = lock(&self.reading);
        self.drain_locked(&mut reading)
    }

    fn drain_locked(&self, reading: &mut Reading) -> usize {
        let mut events = Vec::new();
        let Some(tracer) = &mut reading.tracer else {
            return 0;
        };
        // What cannot be read now is read the next time.
        drop(tracer.drain(&mut |event| events.push(event)));
        let lost = tracer.lost();
        let count = events.len();
        let mut records = self.records();
        for event in events {
            self.apply(event, reading, &mut records);
        }
        let newly = lost.events.saturating_sub(reading.lost.events);
        reading.lost = lost;
        if newly > 0 {
            records.lose(newly);
            reading.next_check = None;
        }
        count
    }

    fn apply(&self, event: KernelEvent, reading: &mut Reading, records: &mut KernelRecords) {
        let at = event.at;
        match event.what {
            Occurrence::Stack(stack) => {
                if let Some(key) = records.ensure(stack.pid, at) {
                    self.note_changes(reading, records);
                    self.stacks.expect(stack.number);
                    self.send(UnwindTask::Stack(key, stack));
                }
            }
            Occurrence::PythonCode(code) => self.send(UnwindTask::Code(code)),
            Occurrence::PythonMapped => {
                if records.ensure(event.pid, at).is_some() {
                    self.note_changes(reading, records);
                    self.send(UnwindTask::PythonMapped(event.pid));
                }
            }
            _ => {
                records.apply(&event);
                self.note_changes(reading, records);
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
                        Err(_) => {
                            reading.unlisted.insert(key.pid);
                            records.add_before(key, []);
                        }
                    }
                    name(records, key);
                }
                ProcessChange::Executed(key) => name(records, key),
                ProcessChange::Forked { .. } | ProcessChange::Over(_) => {}
            }
            self.send(UnwindTask::Change(change));
        }
    }

    /// Compares the tables of processes that do nothing with what is open in them.
    pub(super) fn reconcile(&self) {
        let mut reading = lock(&self.reading);
        let began = Instant::now();
        if reading.next_check.is_some_and(|next| began < next) {
            return;
        }
        let now = monotonic();
        let due = self
            .records()
            .unchecked(now.saturating_sub(QUIET), now.saturating_sub(OLD));
        let until = began + Duration::from_millis(50);
        for pid in due {
            self.check(pid, &mut reading);
            if Instant::now() > until {
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

    /// Waits until every stack was unwound, at most this long.
    pub(super) fn wait_for_stacks(&self, patience: Duration) {
        self.stacks.wait(patience);
    }

    pub(super) fn take_events(&self, key: TraceKey, is_end: bool) -> Option<DrainedEvents> {
        self.records().drain(key, &self.stacks, is_end)
    }

    pub(super) fn table(&self, key: TraceKey) -> Option<ProcessTable> {
        self.records().table(key, &self.stacks)
    }

    /// Ends the recording: what has happened is applied, and the kernel's programs are removed.
    pub(super) fn stop(&self) {
        let mut reading = lock(&self.reading);
        if reading.tracer.is_none() {
            return;
        }
        self.drain_locked(&mut reading);
        let running = self.records().pids();
        for pid in running {
            self.check(pid, &mut reading);
        }
        reading.tracer = None;
        drop(reading);
        // Everything is unwound before it ends.
        let unwinding = lock(&self.unwinding).take();
        drop(unwinding);
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

/// From the thread that unwinds to the kernel, while the trace exists.
struct TraceLink(Weak<KernelTrace>);

impl KernelLink for TraceLink {
    fn remember(&self, (number, slots): KnownStack<'_>) {
        if let Some(trace) = self.0.upgrade() {
            trace.remember(number, slots);
        }
    }

    fn set_python(&self, pid: u32, found: &FoundPython) {
        if let Some(trace) = self.0.upgrade() {
            trace.set_python(pid, found);
        }
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
