//! A watch over running processes.

use std::collections::HashSet;
use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_core::diagnosis::WatchEnd;
use fdguard_core::recording::{Appearance, RecordingEntry, RecordingHeader};
use fdguard_core::timeline::Look;
use fdguard_core::watch::Watch;
use fdguard_core::workload::ProcessGroup;
use fdguard_core::{Gap, Pid, RowKey, Text};
use fdguard_probe::Probe;
use fdguard_process::random;
use fdguard_process::signals::Signals;
use jiff::Timestamp;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::clocks::Reading;
use super::target::WatchTarget;
use super::trouble::{Trouble, trouble_of};
use super::wait::{WakeReason, wait};
use crate::Error;

/// A search for new processes may take one part in two hundred of the time.
const SEARCH_SHARE: u32 = 200;
/// How soon after the end of a process to search for its successor.
const SEARCH_AT_MOST_EVERY: Duration = Duration::from_millis(200);

/// How many slots of ended processes are kept for successors.
const VACANT_KEPT: usize = 256;

/// What to watch, and how.
#[derive(Clone, Debug)]
pub struct WatchPlan {
    /// These processes.
    pub pids: Vec<Pid>,
    /// Also every process of this name, including later ones.
    pub name: Option<String>,
    /// Also every process of these groups, including later ones.
    pub groups: Vec<ProcessGroup>,
    /// With their descendants.
    pub tree: bool,
    /// Time between two looks.
    pub every: Duration,
    /// Random variation of the interval, so that many watches do not look in step.
    pub jitter: Duration,
    /// The length; `None` for no limit.
    pub length: Option<Duration>,
    /// The effect of a termination signal.
    pub on_signal: OnSignal,
}

impl WatchPlan {
    /// Whether successors of an ended process are found.
    fn may_return(&self) -> bool {
        self.name.is_some() || !self.groups.is_empty()
    }
}

/// What happens to a watch on a termination signal.
#[derive(Clone, Debug)]
pub enum OnSignal {
    /// The watch ends; a second signal a little later ends fdguard at once.
    End,
    /// It looks once more and continues: the caller reads the signal and decides.
    Tell(Arc<Signals>),
}

/// The result of an advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchProgress {
    /// Not yet time to look.
    Waiting,
    /// Looked.
    Looked,
    /// Looked, because a signal came.
    Signalled,
    /// The watch is over.
    Ended,
}

/// The running watch.
#[derive(Debug)]
pub struct LiveWatch<'p> {
    probe: &'p Probe,
    plan: WatchPlan,
    began: Instant,
    next: Duration,
    search: Duration,
    watched: Vec<WatchTarget<'p>>,
    /// Ended processes without a successor, with their commands, latest last.
    vacant: Vec<(u32, Text)>,
    known: HashSet<RowKey>,
    /// The number of processes seen so far.
    seen: u32,
    watch: Watch,
    signals: Arc<Signals>,
    clocks: Reading,
    /// Entries that have not been taken yet.
    fresh: Vec<RecordingEntry>,
}

impl<'p> LiveWatch<'p> {
    /// Begins to watch.
    ///
    /// # Errors
    ///
    /// If a process given by pid does not exist, or if no process has the name.
    pub fn start(probe: &'p Probe, plan: WatchPlan) -> Result<Self, Error> {
        make_room();
        let header = RecordingHeader::new(Timestamp::now(), plan.every.as_secs_f64());
        let mut live = Self {
            probe,
            began: Instant::now(),
            next: Duration::ZERO,
            search: Duration::ZERO,
            watched: Vec::new(),
            vacant: Vec::new(),
            known: HashSet::new(),
            seen: 0,
            watch: Watch::new(header),
            signals: match &plan.on_signal {
                OnSignal::End => Signals::listen_for_end().map_err(Error::Signals)?,
                OnSignal::Tell(signals) => Arc::clone(signals),
            },
            clocks: Reading::now(),
            fresh: Vec::new(),
            plan,
        };
        for pid in live.plan.pids.clone() {
            live.add(pid, Place::OfNobody)?;
        }
        live.find_more()?;
        Ok(live)
    }

    /// What was seen so far.
    #[must_use]
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The entries since the last call, for a recorder.
    pub fn take_entries(&mut self) -> Vec<RecordingEntry> {
        std::mem::take(&mut self.fresh)
    }

    /// Waits for the next look, at most until `deadline`, and takes it.
    pub fn advance(&mut self, deadline: Instant) -> Result<WatchProgress, Error> {
        if self.watch.ended().is_some() {
            return Ok(WatchProgress::Ended);
        }
        let end = self.plan.length.map(|length| self.began + length);
        let due = self.began + self.next;
        let due = end.map_or(due, |end| due.min(end));
        let handles: Vec<_> = self.watched.iter().map(|one| &one.handle).collect();
        match wait(&self.signals, &handles, due.min(deadline)) {
            WakeReason::Signal if matches!(self.plan.on_signal, OnSignal::Tell(_)) => {
                self.read_all()?;
                let progress = self.after_look()?;
                let is_over = progress == WatchProgress::Ended;
                return Ok(if is_over {
                    progress
                } else {
                    WatchProgress::Signalled
                });
            }
            WakeReason::Signal => return self.end(WatchEnd::Interrupted),
            WakeReason::ProcessEnded => {
                self.read_all()?;
                // A process that cannot be read for lack of descriptors would wake the loop
                // forever.
                for one in &mut self.watched {
                    one.handle.forget_if_ended();
                }
                return self.after_look();
            }
            WakeReason::Time => {}
        }
        let now = Instant::now();
        if end.is_some_and(|end| now >= end) {
            return self.end(WatchEnd::TimeUp);
        }
        if now < due {
            return Ok(WatchProgress::Waiting);
        }
        self.read_all()?;
        self.plan_next();
        self.after_look()
    }

    fn after_look(&mut self) -> Result<WatchProgress, Error> {
        let may_return = self.plan.may_return();
        if self.watched.is_empty() && !may_return {
            return self.end(WatchEnd::ProcessEnded);
        }
        if self.watched.is_empty() {
            let soon = self.began.elapsed() + SEARCH_AT_MOST_EVERY;
            self.next = self.next.min(soon);
        }
        Ok(WatchProgress::Looked)
    }

    /// Schedules the next look in step with the first one, however long this one took.
    fn plan_next(&mut self) {
        let now = self.began.elapsed();
        while self.next <= now {
            self.next += self.plan.every.max(Duration::from_millis(1));
        }
        if !self.plan.jitter.is_zero() {
            let random = random::bytes().map_or(0, u64::from_ne_bytes);
            let share = (random % 2001) as f64 / 1000.0;
            let shifted = self.next + self.plan.jitter.mul_f64(share);
            self.next = shifted.saturating_sub(self.plan.jitter).max(now);
        }
    }

    fn read_all(&mut self) -> Result<(), Error> {
        let clocks = Reading::now();
        if let Some(gap) = clocks.gap_since(&self.clocks) {
            self.tell(RecordingEntry::Gap(gap));
        }
        self.clocks = clocks;
        self.look_at_all(0, false)?;
        let newcomers = self.seen;
        self.find_more()?;
        // Take their first look now: the next one may be minutes away.
        self.look_at_all(newcomers, false)
    }

    /// Samples every process that was added as number `from` or later.
    fn look_at_all(&mut self, from: u32, last: bool) -> Result<(), Error> {
        let mut watched = std::mem::take(&mut self.watched);
        let mut ended = Vec::new();
        let mut entries = Vec::new();
        for one in watched.iter_mut().filter(|one| one.id >= from) {
            let now = self.began.elapsed();
            let look = if last {
                one.last_look(now)
            } else {
                one.read(now)
            };
            match look {
                Ok(look) => entries.push(RecordingEntry::Look {
                    id: one.id,
                    look: Box::new(look),
                }),
                Err(error) => {
                    let trouble = trouble_of(&error);
                    entries.extend(trouble.gap(&error).map(RecordingEntry::Gap));
                    if trouble == Trouble::Ours {
                        entries.push(unseen(one.id, now));
                        continue;
                    }
                    ended.push((one.id, one.watcher.pid(), trouble));
                    entries.push(RecordingEntry::Gone {
                        id: one.id,
                        at: now.as_secs_f64(),
                    });
                }
            }
        }
        watched.retain(|one| !ended.iter().any(|(id, _, _)| *id == one.id));
        self.watched = watched;
        for entry in entries {
            self.tell(entry);
        }
        for (id, pid, trouble) in ended {
            let subject = self.watch.subjects().find(|subject| subject.id == id);
            let command = subject.map(|subject| subject.process.comm.clone());
            self.vacant.push((id, command.unwrap_or_default()));
            let long_ago = self.vacant.len().saturating_sub(VACANT_KEPT);
            self.vacant.drain(..long_ago);
            // Its descriptors may no longer be listed; the count may still be readable.
            if trouble == Trouble::Denied && !last {
                self.known.retain(|known| known.pid != pid);
                self.add_if_new(pid, Place::Of(id))?;
            }
        }
        Ok(())
    }

    /// Searches for new processes: descendants, those with the name and those of the groups.
    fn find_more(&mut self) -> Result<(), Error> {
        let now = self.began.elapsed();
        if now < self.search || !(self.plan.may_return() || self.plan.tree) {
            return Ok(());
        }
        let started = Instant::now();
        let mut found = Vec::new();
        if let Some(name) = &self.plan.name {
            found.extend(self.probe.named(name)?);
        }
        for group in &self.plan.groups {
            found.extend(self.probe.in_group(group)?);
        }
        if self.plan.tree {
            let roots: Vec<Pid> = self.plan.pids.iter().copied().chain(found).collect();
            let trees = roots.iter().map(|root| self.probe.tree(*root));
            found = trees.flatten().flatten().collect();
        }
        for pid in found {
            self.add_if_new(pid, Place::OfItsLike)?;
        }
        let pause = (started.elapsed() * SEARCH_SHARE).max(SEARCH_AT_MOST_EVERY);
        self.search = self.began.elapsed() + pause;
        Ok(())
    }

    /// Ignores a process that exited since it was found; reports one that fdguard has no room for.
    fn add_if_new(&mut self, pid: Pid, place: Place) -> Result<(), Error> {
        if self.watched.iter().any(|one| one.watcher.pid() == pid) || pid == std::process::id() {
            return Ok(());
        }
        let Err(error) = self.add(pid, place) else {
            return Ok(());
        };
        let Error::Probe(reason) = error else {
            return Err(error);
        };
        if trouble_of(&reason) == Trouble::Ours {
            let why = reason.source().map_or(String::new(), ToString::to_string);
            let remedy =
                "raise fdguard's own limit (ulimit -n): it needs four descriptors per process";
            self.tell(RecordingEntry::Gap(Gap::new("some processes", why, remedy)));
        }
        Ok(())
    }

    fn add(&mut self, pid: Pid, place: Place) -> Result<(), Error> {
        let id = self.seen;
        let one = WatchTarget::new(self.probe, id, pid)?;
        let process = one.watcher.process()?;
        if !self.known.insert(process.row_key()) {
            return Ok(());
        }
        self.seen += 1;
        let takes_place = match place {
            Place::OfNobody => None,
            Place::Of(id) => Some(id),
            Place::OfItsLike => {
                let mut latest_first = self.vacant.iter().rev();
                let like = latest_first.find(|(_, command)| *command == process.comm);
                like.map(|(id, _)| *id)
            }
        };
        self.vacant
            .retain(|(vacant, _)| Some(*vacant) != takes_place);
        let gaps = one.watcher.gaps();
        let appearance = Appearance {
            id,
            at: self.began.elapsed().as_secs_f64(),
            process,
            tier: one.watcher.tier(),
            select: self.probe.select_use(pid).ok(),
            successor_of: takes_place,
        };
        self.watched.push(one);
        self.tell(RecordingEntry::Process(Box::new(appearance)));
        for gap in gaps {
            self.tell(RecordingEntry::Gap(gap));
        }
        Ok(())
    }

    /// Ends the watch before its time.
    pub fn stop(&mut self, ended: WatchEnd) -> Result<(), Error> {
        if self.watch.ended().is_none() {
            self.end(ended)?;
        }
        Ok(())
    }

    /// Takes one last look at everything and records why the watch ended.
    fn end(&mut self, ended: WatchEnd) -> Result<WatchProgress, Error> {
        self.look_at_all(0, true)?;
        self.tell(RecordingEntry::End {
            ended,
            ended_at: Timestamp::now(),
        });
        Ok(WatchProgress::Ended)
    }

    fn tell(&mut self, entry: RecordingEntry) {
        self.watch.record(&entry);
        self.fresh.push(entry);
    }
}

/// The place that a new process takes.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// It was named, or existed when the watch began: it replaces no other.
    OfNobody,
    /// It replaces this one.
    Of(u32),
    /// It replaces the latest ended process of its command, if there is one.
    OfItsLike,
}

/// Raises fdguard's own soft limit: each watched process takes a few descriptors.
fn make_room() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Keep the limit as it is; a lack of room is reported later.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// A look that saw nothing.
fn unseen(id: u32, now: Duration) -> RecordingEntry {
    let look = Look {
        at: now.as_secs_f64(),
        ..Look::default()
    };
    RecordingEntry::Look {
        id,
        look: Box::new(look),
    }
}
