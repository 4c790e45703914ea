//! The events of every traced process as lifetimes of descriptors. They are kept when a process
//! ends, however it ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt as _;

use fdguard_core::event::StackId;
use fdguard_core::lifetimes::{
    JudgedSite, LEAST, NamedPath, PathHistory, PathNumber, Peak, ProcessLifetimes, sites,
};
use fdguard_core::origin::Stack;
use fdguard_core::{Class, Fd, Text, TraceKey};
use fdguard_proc::process;
use fdguard_wire::{CLOSE_FINALIZED, EventKind, EventRecord, OpenCall};

use crate::call_class::CallClasses;
use crate::source::TraceSource;
use crate::symbol::{self, Symbols};
use crate::table::{ProcessTable, RawFrame};

/// The error of a close that closed nothing.
const EBADF: u16 = 9;
/// The most processes without open descriptors that are remembered after their end.
const MOST_CLEAN: usize = 256;
/// The most descriptors, open or closed, whose class is remembered before closed ones are dropped.
const MOST_NAMES: usize = 1 << 18;
/// Stands in for a stack that was lost.
pub(crate) const LOST_STACK: StackId = StackId(u32::MAX);

/// A traced process, as it was when its end began or as it is now.
#[derive(Clone, Debug)]
pub struct TracedProcess {
    /// Its pid.
    pub pid: u32,
    /// When its table was created, by the monotonic clock, in nanoseconds.
    pub began: u64,
    /// Its name.
    pub comm: String,
    /// The process that it was forked from, if it runs the same program.
    pub parent: Option<TraceKey>,
    /// Every line that opened something, those that leak first.
    pub sites: Vec<JudgedSite>,
    /// The classes of descriptors as far as the calls determine them, by number and open time.
    pub classes: HashMap<(Fd, u64), Class>,
    /// The targets of descriptors' links in `/proc`, by number and open time.
    pub links: HashMap<(Fd, u64), Text>,
    /// The most descriptors that it held.
    pub peak: Peak,
    /// How many it holds now, or held at the end.
    pub count: u64,
    /// The time that the findings refer to, by the monotonic clock: the beginning of the end, or
    /// now.
    pub until: u64,
    /// Whether it is gone.
    pub is_gone: bool,
    /// Events that were lost.
    pub lost: u64,
    /// Descriptors that were open before its first instruction, or came from its parent, and still
    /// are.
    pub inherited: BTreeSet<Fd>,
    /// Numbers whose open was seen, and when the latest of these descriptors was closed, in
    /// nanoseconds of the monotonic clock; absent while it is open.
    known: BTreeMap<Fd, Option<u64>>,
}

impl TracedProcess {
    /// The program that it ran.
    #[must_use]
    pub fn key(&self) -> TraceKey {
        TraceKey {
            pid: self.pid,
            began: self.began,
        }
    }

    /// Whether the open of the descriptor that had this number at this time was seen. The number
    /// may have belonged to another one before, whose open was.
    #[must_use]
    pub fn knows(&self, fd: Fd, at: u64) -> bool {
        let until = self.known.get(&fd);
        until.is_some_and(|until| until.is_none_or(|until| until >= at))
    }
}

/// The lifetimes of all processes of a trace.
#[derive(Debug, Default)]
pub(crate) struct Lifetimes {
    processes: BTreeMap<TraceKey, State>,
    /// When the end of the program began.
    ending: Option<u64>,
}

#[derive(Debug)]
struct State {
    pid: u32,
    lifetimes: ProcessLifetimes,
    parent: Option<TraceKey>,
    comm: String,
    calls: CallClasses,
    classes: HashMap<(Fd, u64), Class>,
    links: HashMap<(Fd, u64), Text>,
    /// Links that were just read: trusted if the descriptor is still there at the next check.
    fresh: Vec<(Fd, u64, Text)>,
}

/// What a stack contains.
pub(crate) struct TraitsOfStacks<'a> {
    /// It has Python frames.
    pub(crate) is_python: &'a dyn Fn(StackId) -> bool,
    /// It has a frame of the outermost level of a Python program or module.
    pub(crate) is_in_module: &'a dyn Fn(StackId) -> bool,
}

/// A process whose stacks are not named yet.
pub(crate) struct UnnamedProcess {
    process: TracedProcess,
    paths: Vec<(Vec<RawFrame>, PathHistory)>,
}

impl Lifetimes {
    /// Applies the events of one process, in order. `number` maps each stack of the process to its
    /// id in the trace, `traits` reports what a stack contains.
    pub(crate) fn apply_events(
        &mut self,
        key: TraceKey,
        source: &dyn TraceSource,
        events: &[EventRecord],
        number: &dyn Fn(u32) -> StackId,
        traits: &TraitsOfStacks<'_>,
    ) {
        let is_new = !self.processes.contains_key(&key);
        if events.is_empty() && !(is_new && source.is_late()) {
            return;
        }
        let Some(state) = self.state(key, source) else {
            return;
        };
        state.check_links();
        for event in events {
            state.apply_event(event, number, traits);
        }
        state.read_links(key.pid, events);
    }

    /// Events of a process were lost: its own table corrects the state.
    pub(crate) fn lose(
        &mut self,
        key: TraceKey,
        source: &dyn TraceSource,
        count: u64,
        number: &dyn Fn(u32) -> StackId,
    ) {
        if let Some(state) = self.state(key, source) {
            state.lifetimes.lose(count);
            if let Ok(Some(table)) = source.table(key) {
                state.reconcile(&table, number);
            }
        }
    }

    /// A process is gone, and this is its table.
    pub(crate) fn finish(
        &mut self,
        key: TraceKey,
        table: &ProcessTable,
        now: u64,
        number: &dyn Fn(u32) -> StackId,
    ) {
        let state = self.processes.entry(key);
        let state = state.or_insert_with(|| State::new(key, table));
        state.check_links();
        state.reconcile(table, number);
        state.note_uses(table);
        state.read_exit_report(table);
        state.lifetimes.finish(now);
        self.forget();
    }

    /// Drops processes that closed everything they opened: a build starts thousands.
    fn forget(&mut self) {
        let clean = |state: &State| state.lifetimes.is_gone() && state.lifetimes.is_clean();
        let keys = self.processes.iter().filter(|(_, state)| clean(state));
        let keys: Vec<TraceKey> = keys.map(|(key, _)| *key).collect();
        let oldest = keys.len().saturating_sub(MOST_CLEAN);
        for key in keys.iter().take(oldest) {
            self.processes.remove(key);
        }
    }

    /// The end of the program begins now, in all its processes.
    pub(crate) fn end_begins(&mut self, now: u64) {
        let ending = *self.ending.get_or_insert(now);
        for state in self.processes.values_mut() {
            state.lifetimes.end_begins(ending);
        }
    }

    /// The program did not end after all.
    pub(crate) fn end_is_off(&mut self) {
        self.ending = None;
        for state in self.processes.values_mut() {
            state.lifetimes.end_is_off();
        }
    }

    /// Every process with the history of its stacks, to be named outside the lock.
    pub(crate) fn unnamed(
        &mut self,
        now: u64,
        table_of: &dyn Fn(TraceKey) -> Option<ProcessTable>,
        raw_frames: &dyn Fn(StackId) -> Vec<RawFrame>,
    ) -> Vec<UnnamedProcess> {
        let processes = self.processes.iter_mut().map(|(key, state)| {
            if !state.lifetimes.is_gone()
                && let Some(table) = table_of(*key)
            {
                state.note_uses(&table);
                state.comm = comm(key.pid).unwrap_or_else(|| state.comm.clone());
            }
            state.unnamed(*key, now, raw_frames)
        });
        processes.collect()
    }

    /// The state of a process; `None` before its table can be read.
    fn state(&mut self, key: TraceKey, source: &dyn TraceSource) -> Option<&mut State> {
        if !self.processes.contains_key(&key) {
            let table = source.table(key).ok().flatten()?;
            let mut state = State::new(key, &table);
            if let Some(ending) = self.ending.filter(|ending| key.began < *ending) {
                state.lifetimes.end_begins(ending);
            }
            self.processes.insert(key, state);
        }
        self.processes.get_mut(&key)
    }
}

/// Which sites are wanted: naming a stack takes longer than most programs take to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteDetail {
    /// Those of processes that may leak: for a whole host, most of whose programs do not.
    Suspicious,
    /// Those that hold something; all if one leaks, because others may use its line correctly.
    Held,
    /// Every site.
    Every,
}

impl UnnamedProcess {
    /// Whether a path leaks by itself, or many descriptors are open: then several paths may be one
    /// line.
    fn may_leak(&self) -> bool {
        const MANY: usize = 4 * LEAST;
        let open: usize = self.paths.iter().map(|(_, one)| one.live.len()).sum();
        let leaks = |history: &PathHistory| {
            let path = NamedPath {
                stack: Stack::new(),
                history: history.clone(),
            };
            sites(vec![path]).iter().any(JudgedSite::is_leaking)
        };
        open >= MANY || self.paths.iter().any(|(_, history)| leaks(history))
    }

    /// Replaces addresses with lines.
    pub(crate) fn name(mut self, symbols: &mut Symbols, detail: SiteDetail) -> TracedProcess {
        if detail == SiteDetail::Suspicious && !self.may_leak() {
            return self.process;
        }
        if detail != SiteDetail::Every {
            let holds =
                |history: &PathHistory| !history.live.is_empty() || history.recent.len() > 1;
            let held = self.paths.iter().filter(|(_, history)| holds(history));
            let found = named(held.cloned(), |raw_frames, history: &PathHistory| {
                // A stack of the runtime itself that cannot leak yet needs no names.
                let is_few = history.live.len() + history.recent.len() < LEAST;
                let outline = is_few.then(|| symbol::outline(raw_frames)).flatten();
                outline.unwrap_or_else(|| symbols.name(raw_frames))
            });
            if !found.iter().any(JudgedSite::is_leaking) {
                self.process.sites = found;
                return self.process;
            }
        }
        self.process.sites = named(self.paths.into_iter(), |raw_frames, _| {
            symbols.name(raw_frames)
        });
        self.process
    }
}

fn named(
    paths: impl Iterator<Item = (Vec<RawFrame>, PathHistory)>,
    mut name: impl FnMut(&[RawFrame], &PathHistory) -> Stack,
) -> Vec<JudgedSite> {
    let paths = paths.map(|(raw_frames, history)| NamedPath {
        stack: name(&raw_frames, &history),
        history,
    });
    sites(paths.collect())
}

impl State {
    fn new(TraceKey { pid, began }: TraceKey, table: &ProcessTable) -> Self {
        let forked = table.open.iter().filter(|(_, one)| one.forks > 0);
        let inherited = table.inherited.iter().chain(forked.map(|(fd, _)| fd));
        let lifetimes = ProcessLifetimes::new(began, inherited.copied().collect());
        Self {
            pid,
            lifetimes: if table.is_of_kernel() {
                lifetimes.with_unknown_uses()
            } else {
                lifetimes
            },
            parent: table.parent,
            comm: comm(pid).unwrap_or_else(|| table.comm.clone()),
            calls: CallClasses::default(),
            classes: HashMap::new(),
            links: HashMap::new(),
            fresh: Vec::new(),
        }
    }

    fn apply_event(
        &mut self,
        event: &EventRecord,
        number: &dyn Fn(u32) -> StackId,
        traits: &TraitsOfStacks<'_>,
    ) {
        let (fd, at) = (event.fd, event.ns);
        match event.kind {
            EventKind::Open => {
                let call = OpenCall::from_code(event.code);
                let path = path_number(number(event.stack));
                self.lifetimes.open(fd, path, at, call, event.tid);
                if let Some(class) = self.calls.open(event) {
                    self.classes.insert((fd, at), class);
                }
                if self.classes.len() > MOST_NAMES {
                    let lifetimes = &self.lifetimes;
                    let is_open = |(fd, at): &(Fd, u64)| lifetimes.opened_at(*fd) == Some(*at);
                    self.classes.retain(|one, _| is_open(one));
                    self.links.retain(|one, _| is_open(one));
                }
            }
            EventKind::Close if event.errno != EBADF => {
                let opener = self.lifetimes.path_of(fd).map(StackId);
                // An interpreter that is cleaning up has left the program's outermost line.
                let has_left = event.stack != 0
                    && event.tid == self.pid
                    && !(traits.is_in_module)(number(event.stack));
                let is_finalized = opener.is_some_and(&traits.is_python)
                    && (has_left || event.more[1] & CLOSE_FINALIZED != 0);
                self.forget_name(fd, at);
                self.lifetimes.close(fd, at, is_finalized);
                self.calls.close(fd);
            }
            EventKind::CloseRange => {
                let last = u32::try_from(event.more[0]).unwrap_or(u32::MAX);
                self.lifetimes.close_range(fd, last, at);
                self.calls.close_range(fd, last);
            }
            EventKind::Reassigned => {
                let path = path_number(number(event.stack));
                self.lifetimes.assign(fd, path);
            }
            _ => {}
        }
    }

    /// A descriptor that was open only for a moment needs no name: there may be millions.
    fn forget_name(&mut self, fd: Fd, now: u64) {
        const MOMENT: u64 = 100_000_000;
        if let Some(at) = self.lifetimes.opened_at(fd)
            && now.saturating_sub(at) < MOMENT
        {
            self.classes.remove(&(fd, at));
            self.links.remove(&(fd, at));
        }
    }

    fn reconcile(&mut self, table: &ProcessTable, number: &dyn Fn(u32) -> StackId) {
        let own = table.open.iter().filter(|(_, one)| one.forks == 0);
        let open = own.map(|(fd, one)| {
            let path = path_number(number(one.stack));
            (*fd, (path, one.ns, one.call, one.tid))
        });
        let counts = table.accounts.iter().map(|(stack, account)| {
            let path = path_number(number(*stack));
            (path, account.opened, account.closed)
        });
        let now = self.lifetimes.latest().max(table.last.unwrap_or(0));
        self.lifetimes.reconcile(&open.collect(), counts, now);
    }

    /// Reads the process's exit report of what it left open.
    fn read_exit_report(&mut self, table: &ProcessTable) {
        let Some(report) = table.exit_report() else {
            return;
        };
        for (fd, link) in report.names {
            if let Some(at) = self.lifetimes.opened_at(fd) {
                self.links.insert((fd, at), Text::from(link.as_slice()));
            }
        }
    }

    fn note_uses(&mut self, table: &ProcessTable) {
        let uses = table.open.iter().filter(|(_, one)| one.used > 0);
        self.lifetimes
            .note_uses(uses.map(|(fd, one)| (*fd, one.used)));
    }

    /// Reads the names of some of the new descriptors: the first, second, fourth, eighth … of each
    /// call path.
    fn read_links(&mut self, pid: u32, events: &[EventRecord]) {
        for event in events.iter().filter(|event| event.kind == EventKind::Open) {
            let (fd, at) = (event.fd, event.ns);
            let is_open = self.lifetimes.opened_at(fd) == Some(at);
            let opened = self.lifetimes.opened_by_path_of(fd);
            if is_open
                && opened.is_some_and(u64::is_power_of_two)
                && let Ok(link) = std::fs::read_link(format!("/proc/{pid}/fd/{fd}"))
            {
                let link = Text::from(link.as_os_str().as_bytes());
                self.fresh.push((fd, at, link));
            }
        }
    }

    fn check_links(&mut self) {
        for (fd, at, link) in std::mem::take(&mut self.fresh) {
            if self.lifetimes.opened_at(fd) == Some(at) {
                self.links.insert((fd, at), link);
            }
        }
    }

    fn unnamed(
        &self,
        TraceKey { pid, began }: TraceKey,
        now: u64,
        raw_frames: &dyn Fn(StackId) -> Vec<RawFrame>,
    ) -> UnnamedProcess {
        let histories = self.lifetimes.histories(now);
        let paths = histories.into_iter().filter(|(_, one)| one.opened > 0);
        let fresh = self.fresh.iter().cloned();
        let mut links = self.links.clone();
        links.extend(fresh.map(|(fd, at, link)| ((fd, at), link)));
        UnnamedProcess {
            process: TracedProcess {
                pid,
                began,
                comm: self.comm.clone(),
                parent: self.parent,
                sites: Vec::new(),
                classes: self.classes.clone(),
                links,
                peak: self.lifetimes.peak(),
                count: self.lifetimes.count(),
                until: self.lifetimes.until(now),
                is_gone: self.lifetimes.is_gone(),
                lost: self.lifetimes.lost(),
                inherited: self.lifetimes.inherited().clone(),
                known: self.lifetimes.known().collect(),
            },
            paths: paths
                .map(|(path, history)| (raw_frames(StackId(path)), history))
                .collect(),
        }
    }
}

fn path_number(stack: StackId) -> PathNumber {
    stack.0
}

fn comm(pid: u32) -> Option<String> {
    process::name(pid).filter(|name| !name.is_empty())
}
