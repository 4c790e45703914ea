//! A watch over running processes.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, Instant};

use fdguard_core::diagnosis::Ended;
use fdguard_core::recording::{Appearance, Entry, Header};
use fdguard_core::timeline::Look;
use fdguard_core::watch::Watch;
use fdguard_core::{Gap, Pid};
use fdguard_probe::{Error as ProbeError, Probe};
use jiff::Timestamp;

use super::clocks::Reading;
use super::wait::{Signals, Woken, wait};
use super::watched::Watched;

/// A look for new processes may take one part in two hundred of the time.
const SEARCH_SHARE: u32 = 200;
/// How soon after the end of a process its successor is looked for.
const SEARCH_AT_MOST_EVERY: Duration = Duration::from_millis(200);

/// What to watch, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// These processes.
    pub pids: Vec<Pid>,
    /// And every one of this name, also those that come later.
    pub name: Option<String>,
    /// With their descendants.
    pub tree: bool,
    /// Time between two looks.
    pub every: Duration,
    /// By how much that may differ, so that many watches do not look in step.
    pub jitter: Duration,
    /// How long; for ever when absent.
    pub length: Option<Duration>,
}

/// What an advance came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Not yet time to look.
    Waiting,
    /// Looked.
    Looked,
    /// The watch is over.
    Ended,
}

/// The running watch.
#[derive(Debug)]
pub struct Live<'p> {
    probe: &'p Probe,
    plan: Plan,
    began: Instant,
    next: Duration,
    search: Duration,
    watched: Vec<Watched<'p>>,
    /// Those that ended and were not replaced yet, latest last.
    vacant: Vec<u32>,
    known: HashSet<(Pid, Option<u64>)>,
    watch: Watch,
    signals: Signals,
    clocks: Reading,
    /// Entries that nobody has taken yet.
    fresh: Vec<Entry>,
}

impl<'p> Live<'p> {
    /// Begins to watch. Fails when a process that was named by number is not there, or when nobody has
    /// the name.
    pub fn begin(probe: &'p Probe, plan: Plan) -> anyhow::Result<Self> {
        let header = Header::new(Timestamp::now(), plan.every.as_secs_f64());
        let mut live = Self {
            probe,
            began: Instant::now(),
            next: Duration::ZERO,
            search: Duration::ZERO,
            watched: Vec::new(),
            vacant: Vec::new(),
            known: HashSet::new(),
            watch: Watch::new(header),
            signals: Signals::listen()?,
            clocks: Reading::now(),
            fresh: Vec::new(),
            plan,
        };
        for pid in live.plan.pids.clone() {
            live.add(pid, None)?;
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
    pub fn take_entries(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.fresh)
    }

    /// Waits for the next look, until `deadline` at most, and takes it.
    pub fn advance(&mut self, deadline: Instant) -> anyhow::Result<Progress> {
        if self.watch.ended().is_some() {
            return Ok(Progress::Ended);
        }
        let end = self.plan.length.map(|length| self.began + length);
        let due = self.began + self.next;
        let due = end.map_or(due, |end| due.min(end));
        let handles: Vec<_> = self.watched.iter().map(|one| &one.handle).collect();
        match wait(&self.signals, &handles, due.min(deadline)) {
            Woken::Signal => return self.end(Ended::Interrupted),
            Woken::ProcessEnded => {
                self.look()?;
                return self.after_look();
            }
            Woken::Time => {}
        }
        let now = Instant::now();
        if end.is_some_and(|end| now >= end) {
            return self.end(Ended::TimeUp);
        }
        if now < due {
            return Ok(Progress::Waiting);
        }
        self.look()?;
        self.plan_next();
        self.after_look()
    }

    fn after_look(&mut self) -> anyhow::Result<Progress> {
        let may_return = self.plan.name.is_some();
        if self.watched.is_empty() && !may_return {
            return self.end(Ended::ProcessEnded);
        }
        Ok(Progress::Looked)
    }

    /// The next look: in step with the first one, however long this one took.
    fn plan_next(&mut self) {
        let now = self.began.elapsed();
        while self.next <= now {
            self.next += self.plan.every.max(Duration::from_millis(1));
        }
        if !self.plan.jitter.is_zero() {
            let random = RandomState::new().build_hasher().finish();
            let share = (random % 2001) as f64 / 1000.0;
            let shifted = self.next + self.plan.jitter.mul_f64(share);
            self.next = shifted.saturating_sub(self.plan.jitter).max(now);
        }
        if self.watched.is_empty() {
            self.next = self.next.min(now + SEARCH_AT_MOST_EVERY);
        }
    }

    fn look(&mut self) -> anyhow::Result<()> {
        let clocks = Reading::now();
        if let Some(gap) = clocks.gap_since(&self.clocks) {
            self.tell(Entry::Gap(gap));
        }
        self.clocks = clocks;
        self.look_at_all(false)?;
        self.find_more()
    }

    fn look_at_all(&mut self, last: bool) -> anyhow::Result<()> {
        let mut watched = std::mem::take(&mut self.watched);
        let mut ended = Vec::new();
        let mut entries = Vec::new();
        for one in &mut watched {
            let now = self.began.elapsed();
            let look = if last {
                one.last_look(now)
            } else {
                one.look(now)
            };
            match look {
                Ok(look) => entries.push(Entry::Look {
                    id: one.id,
                    look: Box::new(look),
                }),
                Err(error) => {
                    let trouble = trouble_of(&error);
                    entries.extend(trouble.gap(&error).map(Entry::Gap));
                    if trouble == Trouble::Ours {
                        entries.push(unseen(one.id, now));
                        continue;
                    }
                    ended.push((one.id, one.watcher.pid(), trouble));
                    entries.push(Entry::Gone {
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
            self.vacant.push(id);
            // Its descriptors may not be listed any more; the count may still be read.
            if trouble == Trouble::Denied && !last {
                self.known.retain(|(known, _)| *known != pid);
                self.add_if_new(pid, Some(id))?;
            }
        }
        Ok(())
    }

    /// Looks for processes that came since: descendants, and those of the name.
    fn find_more(&mut self) -> anyhow::Result<()> {
        let now = self.began.elapsed();
        if now < self.search || (self.plan.name.is_none() && !self.plan.tree) {
            return Ok(());
        }
        let started = Instant::now();
        let is_first = self.known.is_empty() || self.watch.at() == 0.0;
        let mut found = Vec::new();
        if let Some(name) = &self.plan.name {
            found.extend(self.probe.named(name)?);
        }
        if self.plan.tree {
            let roots: Vec<Pid> = self.plan.pids.iter().copied().chain(found).collect();
            let trees = roots.iter().map(|root| self.probe.tree(*root));
            found = trees.flatten().flatten().collect();
        }
        for pid in found {
            let takes_place = self.vacant.last().copied().filter(|_| !is_first);
            self.add_if_new(pid, takes_place)?;
        }
        let pause = (started.elapsed() * SEARCH_SHARE).max(SEARCH_AT_MOST_EVERY);
        self.search = self.began.elapsed() + pause;
        Ok(())
    }

    /// A process that ended since it was found is no loss.
    fn add_if_new(&mut self, pid: Pid, takes_place: Option<u32>) -> anyhow::Result<()> {
        if self.watched.iter().any(|one| one.watcher.pid() == pid) || pid == std::process::id() {
            return Ok(());
        }
        match self.add(pid, takes_place) {
            Err(error) if error.downcast_ref::<ProbeError>().is_some() => Ok(()),
            other => other,
        }
    }

    fn add(&mut self, pid: Pid, takes_place: Option<u32>) -> anyhow::Result<()> {
        let id = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        let one = Watched::new(self.probe, id, pid)?;
        let process = one.watcher.process()?;
        if !self.known.insert((pid, process.start_ticks)) {
            return Ok(());
        }
        if let Some(place) = takes_place {
            self.vacant.retain(|vacant| *vacant != place);
        }
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
        self.tell(Entry::Process(Box::new(appearance)));
        for gap in gaps {
            self.tell(Entry::Gap(gap));
        }
        Ok(())
    }

    /// Ends the watch before its time.
    pub fn stop(&mut self, ended: Ended) -> anyhow::Result<()> {
        if self.watch.ended().is_none() {
            self.end(ended)?;
        }
        Ok(())
    }

    /// One last look at everything, and why there is no other.
    fn end(&mut self, ended: Ended) -> anyhow::Result<Progress> {
        self.look_at_all(true)?;
        self.tell(Entry::End {
            ended,
            ended_at: Timestamp::now(),
        });
        Ok(Progress::Ended)
    }

    fn tell(&mut self, entry: Entry) {
        self.watch.take(&entry);
        self.fresh.push(entry);
    }
}

/// What kept a look from succeeding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The process ended.
    Ended,
    /// We have no room: says nothing about the process.
    Ours,
    /// We may not look any more.
    Denied,
}

fn trouble_of(error: &ProbeError) -> Trouble {
    match error {
        ProbeError::NoSuchProcess(_) | ProbeError::Vanished(_) | ProbeError::Zombie { .. } => {
            Trouble::Ended
        }
        ProbeError::Io { source, .. } if is_lack_of_room(source) => Trouble::Ours,
        _ => Trouble::Denied,
    }
}

fn is_lack_of_room(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let number = Errno::from_io_error(error);
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

impl Trouble {
    fn gap(self, error: &ProbeError) -> Option<Gap> {
        let source = std::error::Error::source(error);
        let why = source.map_or_else(|| error.to_string(), ToString::to_string);
        let (what, remedy) = match self {
            Self::Ended => return None,
            Self::Ours => (
                "some looks",
                "raise our own limit (ulimit -n) or free files on the host",
            ),
            Self::Denied => (
                "what the descriptors are, from some time on",
                "run as root; what was seen before is judged, and the count goes on",
            ),
        };
        Some(Gap::new(what, why, remedy))
    }
}

/// A look that saw nothing.
fn unseen(id: u32, now: Duration) -> Entry {
    let look = Look {
        at: now.as_secs_f64(),
        ..Look::default()
    };
    Entry::Look {
        id,
        look: Box::new(look),
    }
}
