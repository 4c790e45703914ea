//! The lifetimes of one process, from its events.

use std::collections::{BTreeSet, HashMap};

use super::activity::ActivityClock;
use super::course::ClosedStats;
use super::history::{Lifetime, Moment, PathHistory, PathLevel};
use crate::Fd;
use crate::event::OpenCall;

/// A call path of one process, by the number that the tracer gave its stack.
pub type PathNumber = u32;

/// The most descriptors that were open at once, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// How many.
    pub count: u64,
    /// When, in nanoseconds of the monotonic clock.
    pub at: u64,
}

/// Everything that a process opened and closed.
#[derive(Clone, Debug)]
pub struct ProcessLifetimes {
    began: u64,
    clock: ActivityClock,
    open: HashMap<Fd, (PathNumber, Lifetime)>,
    paths: HashMap<PathNumber, PathState>,
    /// When each number was last closed: it identifies an open that is reported late.
    closed: HashMap<Fd, u64>,
    /// When a descriptor of each number was last closed that was inherited or whose open was seen.
    ended: HashMap<Fd, u64>,
    /// Numbers that were open before the first instruction, or were inherited from a parent.
    inherited: BTreeSet<Fd>,
    /// When the end of the program began.
    ending: Option<u64>,
    /// The active time until then, known from the first event after it.
    ending_active: Option<u64>,
    /// When the process was gone.
    gone: Option<u64>,
    /// Each number's latest use was after this time; only where the tracer collects uses.
    uses: HashMap<Fd, u64>,
    is_use_unknown: bool,
    peak: Peak,
    /// Events that are lost for good.
    lost: u64,
}

/// One path, while events come.
#[derive(Clone, Debug, Default)]
struct PathState {
    call: OpenCall,
    opened: u64,
    closed: u64,
    past: ClosedStats,
    recent: Vec<Lifetime>,
    first_open: Option<Moment>,
    last_open: Moment,
    last_open_at: u64,
    level: PathLevel,
}

impl PathState {
    /// It opens something again: the closes in between were not its end.
    fn open_again(&mut self, at: u64, moment: Moment) {
        for one in self.recent.drain(..) {
            self.past.count(&one);
        }
        self.first_open.get_or_insert(moment);
        let open = self.opened.saturating_sub(self.closed);
        self.level.note_open(open, moment);
        if at > self.last_open_at {
            self.last_open_at = at;
            self.last_open = moment;
        }
    }

    /// Opened and closed at unknown times: they count, and their lifetimes were short.
    fn add_unseen(&mut self, count: u64, moment: Moment) {
        self.opened += count;
        self.closed += count;
        self.past.count_many(count, moment);
    }
}

impl ProcessLifetimes {
    /// A process that began then, with these numbers open.
    #[must_use]
    pub fn new(began: u64, inherited: BTreeSet<Fd>) -> Self {
        let peak = Peak {
            count: inherited.len() as u64,
            at: began,
        };
        Self {
            began,
            clock: ActivityClock::new(began),
            open: HashMap::new(),
            paths: HashMap::new(),
            closed: HashMap::new(),
            ended: HashMap::new(),
            inherited,
            ending: None,
            ending_active: None,
            gone: None,
            uses: HashMap::new(),
            is_use_unknown: false,
            peak,
            lost: 0,
        }
    }

    /// A descriptor was opened.
    pub fn open(&mut self, fd: Fd, path: PathNumber, at: u64, call: OpenCall, thread: u32) {
        let opened = self.advance(at);
        let lifetime = Lifetime {
            fd,
            at,
            opened,
            closed: None,
            is_finalized: false,
            call,
            thread,
        };
        if let Some(closed) = self.closed.get(&fd).copied().filter(|closed| at < *closed) {
            // Reported late: it is closed by now.
            let moment = self.moment(closed);
            self.paths.entry(path).or_default().add_unseen(1, moment);
            self.note_ended(fd, closed);
            return;
        }
        if self.opened_at(fd) == Some(at) {
            return;
        }
        if self.open.contains_key(&fd) {
            // Its close was not seen: it closed before this one was opened.
            self.end(fd, at, false);
        }
        self.inherited.remove(&fd);
        let is_after_end = self.ending.is_some_and(|ending| at > ending);
        let state = self.paths.entry(path).or_default();
        state.opened += 1;
        state.call = call;
        if !is_after_end {
            state.open_again(at, opened);
        }
        self.open.insert(fd, (path, lifetime));
        self.note_peak(at);
    }

    /// A descriptor was closed. Numbers that are not known to be open are ignored. `is_finalized`:
    /// a runtime closed it, without any code of the program.
    pub fn close(&mut self, fd: Fd, at: u64, is_finalized: bool) {
        self.advance(at);
        let last = self.closed.entry(fd).or_default();
        *last = (*last).max(at);
        let is_older = self.open.get(&fd).is_some_and(|(_, one)| one.at > at);
        if !is_older {
            if self.inherited.remove(&fd) {
                self.note_ended(fd, at);
            }
            self.end(fd, at, is_finalized);
        }
    }

    /// All numbers of a range were closed.
    pub fn close_range(&mut self, first: Fd, last: Fd, at: u64) {
        let open = self.open.keys().chain(&self.inherited).copied();
        let fds: Vec<Fd> = open.filter(|fd| (first..=last).contains(fd)).collect();
        for fd in fds {
            self.close(fd, at, false);
        }
    }

    fn end(&mut self, fd: Fd, at: u64, is_finalized: bool) {
        let Some((path, mut one)) = self.open.remove(&fd) else {
            return;
        };
        self.note_ended(fd, at);
        one.closed = Some(self.moment(at));
        one.is_finalized = is_finalized;
        let state = self.paths.entry(path).or_default();
        state.closed += 1;
        if one.at > state.last_open_at {
            // Opened after the end began.
            state.past.count(&one);
        } else {
            state.recent.push(one);
        }
    }

    /// The tracer learned that another path requested the descriptor of this number.
    pub fn assign(&mut self, fd: Fd, path: PathNumber) {
        let Some((before, one)) = self.open.get(&fd).copied() else {
            return;
        };
        if before == path {
            return;
        }
        if let Some(state) = self.paths.get_mut(&before) {
            state.opened = state.opened.saturating_sub(1);
        }
        let state = self.paths.entry(path).or_default();
        state.opened += 1;
        state.call = one.call;
        state.open_again(one.at, one.opened);
        self.open.insert(fd, (path, one));
    }

    /// The end of the program begins: closes from now on are not its habit.
    pub fn end_begins(&mut self, at: u64) {
        self.ending.get_or_insert(at);
    }

    /// The program did not end after all.
    pub fn end_is_off(&mut self) {
        self.ending = None;
        self.ending_active = None;
    }

    /// The process has exited.
    pub fn finish(&mut self, at: u64) {
        self.gone.get_or_insert(at);
    }

    /// Events were lost. The open descriptors, with their paths and opening times, correct the
    /// state as far as possible: see [`ProcessLifetimes::reconcile`].
    pub fn lose(&mut self, count: u64) {
        self.lost += count;
    }

    /// Adds what the events did not report, from the process's own record of open descriptors and
    /// of its paths' counts.
    pub fn reconcile(
        &mut self,
        open: &HashMap<Fd, (PathNumber, u64, OpenCall, u32)>,
        counts: impl IntoIterator<Item = (PathNumber, u64, u64)>,
        now: u64,
    ) {
        let gone: Vec<Fd> = self
            .open
            .iter()
            .filter(|(fd, (_, one))| open.get(*fd).is_none_or(|(_, at, _, _)| *at != one.at))
            .map(|(fd, _)| *fd)
            .collect();
        for fd in gone {
            self.end(fd, now, false);
        }
        let mut missing: Vec<_> = open
            .iter()
            .filter(|(fd, _)| !self.open.contains_key(fd))
            .collect();
        missing.sort_by_key(|(_, (_, at, _, _))| *at);
        for (fd, (path, at, call, thread)) in missing {
            self.closed.remove(fd);
            self.open(*fd, *path, *at, *call, *thread);
        }
        let moment = self.moment(now);
        for (path, opened, _) in counts {
            let state = self.paths.entry(path).or_default();
            let unseen = opened.saturating_sub(state.opened);
            if unseen > 0 {
                state.add_unseen(unseen, moment);
            }
        }
    }

    /// The tracer records no uses of this process.
    #[must_use]
    pub fn with_unknown_uses(self) -> Self {
        Self {
            is_use_unknown: true,
            ..self
        }
    }

    /// When numbers were last used: each after the event of this time.
    pub fn note_uses(&mut self, uses: impl IntoIterator<Item = (Fd, u64)>) {
        self.uses.extend(uses);
    }

    /// The history of every path until the end of the program began, or until now.
    #[must_use]
    pub fn histories(&self, now: u64) -> HashMap<PathNumber, PathHistory> {
        let until = self.until(now);
        let mut histories: HashMap<PathNumber, PathHistory> = self
            .paths
            .iter()
            .map(|(path, state)| (*path, self.history(state, until)))
            .collect();
        let is_counted = |one: &Lifetime| self.ending.is_none_or(|ending| one.at <= ending);
        for (path, one) in self.open.values().filter(|(_, one)| is_counted(one)) {
            let Some(history) = histories.get_mut(path) else {
                continue;
            };
            history.live.push(*one);
            let last = self.paths.get(path).map_or(0, |state| state.last_open_at);
            let used = self.uses.get(&one.fd).copied().unwrap_or(0);
            history.used_late += usize::from(one.at < last && used >= last);
        }
        for history in histories.values_mut() {
            history.live.sort_by_key(|one| one.at);
            history.recent.sort_by_key(|one| one.at);
        }
        histories
    }

    fn history(&self, state: &PathState, until: u64) -> PathHistory {
        PathHistory {
            call: state.call,
            opened: state.opened,
            closed: state.closed,
            live: Vec::new(),
            recent: state.recent.clone(),
            past: state.past,
            first_open: state.first_open.unwrap_or_default(),
            last_open: state.last_open,
            level: state.level,
            used_late: 0,
            is_use_unknown: self.is_use_unknown,
            until: match self.ending_active.filter(|_| self.ending == Some(until)) {
                Some(active) => self.with_active(until, active),
                None => self.moment(until),
            },
            is_ending: self.ending.is_some() || self.gone.is_some(),
        }
    }

    /// The time that is judged: the beginning of the end, the exit, or now.
    #[must_use]
    pub fn until(&self, now: u64) -> u64 {
        self.ending.or(self.gone).unwrap_or(now)
    }

    /// When it began, in nanoseconds of the monotonic clock.
    #[must_use]
    pub fn began(&self) -> u64 {
        self.began
    }

    /// When its latest event was.
    #[must_use]
    pub fn latest(&self) -> u64 {
        self.clock.latest()
    }

    /// Whether the process has exited.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// Descriptors that are open and were there before, or were inherited from a parent.
    #[must_use]
    pub fn inherited(&self) -> &BTreeSet<Fd> {
        &self.inherited
    }

    /// The most that were open at once.
    #[must_use]
    pub fn peak(&self) -> Peak {
        self.peak
    }

    /// How many are open now, including those that were there before.
    #[must_use]
    pub fn count(&self) -> u64 {
        (self.open.len() + self.inherited.len()) as u64
    }

    /// Events that were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The numbers of open descriptors whose open was seen.
    pub fn known(&self) -> impl Iterator<Item = Fd> {
        self.open.keys().copied()
    }

    /// When a descriptor of each number was last closed that was inherited or whose open was seen,
    /// by the monotonic clock. A number that was closed otherwise is not in it.
    #[must_use]
    pub fn ended(&self) -> &HashMap<Fd, u64> {
        &self.ended
    }

    fn note_ended(&mut self, fd: Fd, at: u64) {
        let last = self.ended.entry(fd).or_default();
        *last = (*last).max(at);
    }

    /// The path that opened the descriptor of this number.
    #[must_use]
    pub fn path_of(&self, fd: Fd) -> Option<PathNumber> {
        self.open.get(&fd).map(|(path, _)| *path)
    }

    /// When the descriptor of this number was opened.
    #[must_use]
    pub fn opened_at(&self, fd: Fd) -> Option<u64> {
        self.open.get(&fd).map(|(_, one)| one.at)
    }

    /// How many descriptors were opened by the path that opened this number.
    #[must_use]
    pub fn opened_by_path_of(&self, fd: Fd) -> Option<u64> {
        let path = self.path_of(fd)?;
        self.paths.get(&path).map(|state| state.opened)
    }

    /// Whether nothing about it is worth keeping after its exit: all that it opened was closed one
    /// by one.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        const FEW: usize = 1;
        self.open.is_empty() && self.paths.values().all(|path| path.recent.len() <= FEW)
    }

    fn note_peak(&mut self, at: u64) {
        let count = self.count();
        if count > self.peak.count {
            self.peak = Peak { count, at };
        }
    }

    fn advance(&mut self, at: u64) -> Moment {
        if let Some(ending) = self.ending.filter(|ending| at > *ending) {
            let active = self.clock.at(ending);
            self.ending_active.get_or_insert(active);
        }
        let active = self.clock.advance(at);
        self.with_active(at, active)
    }

    fn moment(&self, at: u64) -> Moment {
        self.with_active(at, self.clock.at(at))
    }

    fn with_active(&self, at: u64, active: u64) -> Moment {
        let seconds = |ns: u64| std::time::Duration::from_nanos(ns).as_secs_f64();
        Moment {
            real: seconds(at.saturating_sub(self.began)),
            active: seconds(active),
        }
    }
}
