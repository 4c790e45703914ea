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
use fdguard_trace::{Options, PreloadSource, StateParts, TraceSession, UntracedProgram};

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
    /// Starts to read what the source records; fails with the reason.
    pub(super) fn start(source: PreloadSource) -> Result<Self, String> {
        let (jobs, asked) = mpsc::channel();
        let (answer, replies) = mpsc::channel();
        let (begin, begun) = mpsc::sync_channel(1);
        // Symbols cannot leave the thread that uses them, so the session is started there.
        let work = move || match TraceSession::start(source, &Options::default()) {
            Ok(session) => {
                drop(begin.send(Ok(session.prevented())));
                Looker::new(session).work(&asked, &answer);
            }
            Err(error) => drop(begin.send(Err(format!("{:#}", anyhow::Error::new(error))))),
        };
        let thread = std::thread::Builder::new()
            .name("fdguard-look".to_owned())
            .spawn(work)
            .map_err(|error| error.to_string())?;
        let prevented = begun.recv().map_err(|error| error.to_string())??;
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
    /// Its symbols are those of one run: the next one may be another build.
    session: TraceSession,
    prevented: Arc<AtomicU64>,
    /// How much was prevented when hazards were last resolved to lines.
    named: u64,
    /// Counts of processes that are gone.
    past: Counts,
}

impl Looker {
    fn new(session: TraceSession) -> Self {
        Self {
            prevented: session.prevented(),
            session,
            named: 0,
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
        for gone in self.session.poll().unwrap_or_default() {
            add(&mut self.past, &gone.prevented);
        }
        let mut sums = self.past.clone();
        for table in self.session.take_tables().iter() {
            add(&mut sums, &table.prevented);
        }
        let heard = self.prevented.load(Ordering::Relaxed);
        let is_news = heard != self.named || (is_end && !sums.is_empty());
        let (hazards, gaps) = if is_news {
            self.named = heard;
            let state = self.session.state(StateParts {
                is_end,
                ..StateParts::HAZARDS
            });
            (state.hazards, state.gaps)
        } else {
            Default::default()
        };
        WorkerFindings {
            counts: sums,
            became: self.session.became().clone(),
            hazards,
            gaps,
            is_last: false,
        }
    }

    /// The line that opened most of what a process holds. Symbols are freed at once: breaches are
    /// rare.
    fn line(&mut self, pid: u32) -> Option<String> {
        let sites = self.session.sites_of(pid);
        self.session.free_symbols();
        sites
            .ok()?
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
