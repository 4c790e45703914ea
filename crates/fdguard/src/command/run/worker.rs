//! The thread that inspects one run of a service: reading tables and naming lines is slow, and the
//! loop must not block.
//!
//! The loop starts it, so that it inherits the loop's signal mask and receives no signals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fdguard_core::Gap;
use fdguard_core::hazard::Hazard;
use fdguard_supervise::trim;
use fdguard_trace::{Injection, Symbols, UntracedProgram};

use crate::report::trace::name;

/// What was prevented, by rule.
pub(super) type Counts = BTreeMap<&'static str, u64>;

/// A request to the thread.
#[derive(Debug)]
enum Job {
    Look,
    Line(u32),
    End,
}

/// Its reply.
#[derive(Debug)]
pub(super) enum Reply {
    Found(WorkerFindings),
    Line(u32, Option<String>),
}

/// What one look found.
#[derive(Debug, Default)]
pub(super) struct WorkerFindings {
    /// Since the run began.
    pub(super) counts: Counts,
    /// Processes that have executed a program without the library.
    pub(super) became: BTreeMap<u32, UntracedProgram>,
    /// All hazards, if there may be new ones.
    pub(super) hazards: Vec<Hazard>,
    pub(super) gaps: Vec<Gap>,
    /// The injection is finished.
    pub(super) is_last: bool,
}

/// The loop's side.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Sender<Job>,
    replies: Receiver<Reply>,
    thread: Option<JoinHandle<()>>,
    prevented: Arc<AtomicU64>,
}

impl Worker {
    pub(super) fn start(injection: Injection) -> std::io::Result<Self> {
        let prevented = injection.prevented();
        let (jobs, asked) = mpsc::channel();
        let (answer, replies) = mpsc::channel();
        let heard = Arc::clone(&prevented);
        let thread = std::thread::Builder::new()
            .name("fdguard-look".to_owned())
            .spawn(move || Looker::new(injection, heard).work(&asked, &answer))?;
        Ok(Self {
            jobs,
            replies,
            thread: Some(thread),
            prevented,
        })
    }

    /// How much was prevented as far as known: decides whether a look is worthwhile.
    pub(super) fn prevented(&self) -> u64 {
        self.prevented.load(Ordering::Relaxed)
    }

    // If the thread is gone, the code that waits for replies notices.
    pub(super) fn wake(&self) {
        drop(self.jobs.send(Job::Look));
    }

    pub(super) fn ask_line(&self, pid: u32) {
        drop(self.jobs.send(Job::Line(pid)));
    }

    pub(super) fn end(&self) {
        drop(self.jobs.send(Job::End));
    }

    /// The next reply until then; fails if the thread is gone.
    pub(super) fn reply(&self, until: Instant) -> Result<Option<Reply>, WorkerGone> {
        let within = until.saturating_duration_since(Instant::now());
        match self
            .replies
            .recv_timeout(within.max(Duration::from_micros(1)))
        {
            Ok(reply) => Ok(Some(reply)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(WorkerGone),
        }
    }

    /// Joins the thread after its last reply.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic was already printed.
            drop(thread.join());
        }
    }
}

/// The thread is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerGone;

/// The thread's side.
struct Looker {
    injection: Injection,
    prevented: Arc<AtomicU64>,
    /// How much was prevented when hazards were last resolved to lines.
    named: u64,
    /// Symbols of one run: the next one may be another build.
    symbols: Option<Symbols>,
    /// Counts of processes that have a table.
    counts: BTreeMap<(u32, u64), Counts>,
    /// Counts of processes that are gone.
    past: Counts,
}

impl Looker {
    fn new(injection: Injection, prevented: Arc<AtomicU64>) -> Self {
        Self {
            injection,
            prevented,
            named: 0,
            symbols: None,
            counts: BTreeMap::new(),
            past: Counts::new(),
        }
    }

    /// Works until the end, or until the sender is gone.
    fn work(mut self, asked: &Receiver<Job>, answer: &Sender<Reply>) {
        for job in asked {
            let reply = match job {
                Job::Look => Reply::Found(self.look(false)),
                Job::Line(pid) => Reply::Line(pid, self.line(pid)),
                Job::End => {
                    let found = self.look(true);
                    // Remove the directory before the loop learns of the end.
                    drop(self);
                    trim::return_free_memory();
                    let is_last = true;
                    drop(answer.send(Reply::Found(WorkerFindings { is_last, ..found })));
                    return;
                }
            };
            // Tables are large, and the next look is far away.
            trim::return_free_memory();
            if answer.send(reply).is_err() {
                return;
            }
        }
    }

    fn look(&mut self, is_end: bool) -> WorkerFindings {
        // A directory that can no longer be read yields nothing.
        let (tables, became) = self.injection.sweep().unwrap_or_default();
        let mut counts = BTreeMap::new();
        for table in tables.iter().filter(|table| !table.prevented.is_empty()) {
            counts.insert((table.pid, table.began), table.prevented.clone());
        }
        for (key, gone) in std::mem::take(&mut self.counts) {
            if !counts.contains_key(&key) {
                add(&mut self.past, &gone);
            }
        }
        self.counts = counts;
        let mut sums = self.past.clone();
        for one in self.counts.values() {
            add(&mut sums, one);
        }
        let heard = self.prevented.load(Ordering::Relaxed);
        let is_news = heard != self.named || (is_end && !sums.is_empty());
        let (hazards, gaps) = if is_news {
            self.named = heard;
            let symbols = self.symbols.get_or_insert_default();
            self.injection.hazards(symbols, is_end)
        } else {
            Default::default()
        };
        WorkerFindings {
            counts: sums,
            became,
            hazards,
            gaps,
            is_last: false,
        }
    }

    /// The line that opened most of what a process holds. Symbols are freed at once: breaches are
    /// rare.
    fn line(&self, pid: u32) -> Option<String> {
        let sites = self.injection.sites(pid, &mut Symbols::new()).ok()?;
        sites
            .iter()
            .find_map(|site| site.culprit.as_ref())
            .map(name::culprit)
    }
}

pub(super) fn add(sums: &mut Counts, more: &Counts) {
    for (rule, count) in more {
        *sums.entry(rule).or_default() += count;
    }
}
