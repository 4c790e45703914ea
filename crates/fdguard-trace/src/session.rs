//! One trace: its source, the thread that reads the events, the tables, and the symbols.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use fdguard_core::TraceKey;
use fdguard_core::children::finding::ChildPile;
use fdguard_core::origin::{Culprit, Origin};
use jiff::Timestamp;

use crate::launch::Options;
use crate::lifetimes::SiteDetail;
use crate::listener::{Listener, monotonic};
use crate::observed_trace::{UntracedProgram, is_alive};
use crate::recording_gaps::source_gaps;
use crate::site::Site;
use crate::source::TraceSource;
use crate::state::{OpenSites, StateParts, TraceScope, TraceState};
use crate::symbol::Symbols;
use crate::table::{ProcessTable, ProcessTables};
use crate::{BlindReason, Error};

/// The most programs without records that are remembered after their process is gone.
const MOST_BECAME: usize = 4096;

/// A running trace. Dropping it ends the recording.
#[derive(Debug)]
pub struct TraceSession {
    /// Stops before the source ends.
    listener: Listener,
    source: Arc<dyn TraceSource>,
    symbols: Symbols,
    /// Another fdguard runs the trace.
    is_observer: bool,
    keep_ended: bool,
    /// The processes that the trace is about.
    roots: BTreeSet<u32>,
    /// At the last poll, and for an observer at the one before.
    tables: ProcessTables,
    before: Option<ProcessTables>,
    /// The programs without records that its processes became.
    became: BTreeMap<u32, UntracedProgram>,
    /// Programs that became others.
    outlived: BTreeSet<TraceKey>,
    /// Processes that recorded at some poll.
    recorded: BTreeSet<u32>,
    /// The program that each process without records was running when it was examined.
    examined: BTreeMap<u32, PathBuf>,
}

impl TraceSession {
    /// Starts to read what the source records.
    pub fn start(source: impl TraceSource + 'static, options: &Options) -> Result<Self, Error> {
        Self::start_shared(Arc::new(source), options)
    }

    /// The same for a source that the caller keeps, too.
    pub(crate) fn start_shared(
        source: Arc<dyn TraceSource>,
        options: &Options,
    ) -> Result<Self, Error> {
        let listener = match source.blind() {
            None => Listener::start(Arc::clone(&source)).map_err(|source| Error::Dir { source })?,
            Some(_) => Listener::on_demand(Arc::clone(&source)),
        };
        let keep_ended = options.keep_ended;
        Ok(Self {
            keep_ended,
            ..Self::new(source, listener)
        })
    }

    /// Reads a trace about this process that another fdguard runs.
    pub(crate) fn observe(source: impl TraceSource + 'static, root: u32) -> Self {
        let source: Arc<dyn TraceSource> = Arc::new(source);
        let listener = Listener::on_demand(Arc::clone(&source));
        Self {
            is_observer: true,
            roots: BTreeSet::from([root]),
            ..Self::new(source, listener)
        }
    }

    fn new(source: Arc<dyn TraceSource>, listener: Listener) -> Self {
        Self {
            listener,
            source,
            symbols: Symbols::new(),
            is_observer: false,
            keep_ended: false,
            roots: BTreeSet::new(),
            tables: ProcessTables::default(),
            before: None,
            became: BTreeMap::new(),
            outlived: BTreeSet::new(),
            recorded: BTreeSet::new(),
            examined: BTreeMap::new(),
        }
    }

    /// The records of this process are kept until the end.
    pub(crate) fn add_root(&mut self, pid: u32) {
        self.roots.insert(pid);
    }

    /// Where the records come from.
    #[must_use]
    pub fn source(&self) -> &dyn TraceSource {
        &*self.source
    }

    /// Reads what every process holds. Removes the records of processes that are gone, because they
    /// take memory, and returns their last tables.
    pub fn poll(&mut self) -> Result<Vec<ProcessTable>, Error> {
        if !self.is_observer {
            // The events of processes that came and went, before their records are removed.
            drop(self.listener.polled(false));
        }
        let mut tables = self.tables()?;
        self.recorded.extend(tables.latest().map(|table| table.pid));
        let latest = tables.latest().map(ProcessTable::key);
        let outlived: Vec<TraceKey> = latest.filter(|key| self.source.is_outlived(*key)).collect();
        for key in outlived {
            self.outlived.insert(key);
            let untraced = self.source.untraced(key.pid);
            self.became.extend(untraced.map(|one| (key.pid, one)));
        }
        tables.outlive(&self.outlived);
        let gone = if self.is_observer {
            let is_first = self.tables.read_at == 0;
            self.before = Some(std::mem::take(&mut self.tables)).filter(|_| !is_first);
            Vec::new()
        } else {
            tables.take_unwanted(|table| self.is_wanted(table))
        };
        for table in &gone {
            self.source.remove(table.key());
        }
        self.forget(&tables);
        self.tables = tables;
        Ok(gone)
    }

    fn is_wanted(&self, table: &ProcessTable) -> bool {
        let holds = self.keep_ended && table.open.values().any(|one| one.forks == 0);
        let is_done = self.listener.pump().is_done_with(table.key());
        holds || self.roots.contains(&table.pid) || is_alive(table.pid) || !is_done
    }

    /// A service may start untraced programs for weeks.
    fn forget(&mut self, tables: &ProcessTables) {
        if self.became.len() > MOST_BECAME {
            self.became.retain(|pid, _| is_alive(*pid));
            self.outlived.retain(|key| tables.has(*key));
            self.recorded.retain(|pid| is_alive(*pid));
        }
    }

    /// What the processes hold right now, beside the polls.
    pub fn tables(&self) -> Result<ProcessTables, Error> {
        let mut tables = ProcessTables::read(&*self.source)?;
        tables.outlive(&self.outlived);
        Ok(tables)
    }

    /// Takes out what was read at the last poll, which takes memory.
    pub fn take_tables(&mut self) -> ProcessTables {
        std::mem::take(&mut self.tables)
    }

    /// What the trace has found so far, as far as it is wanted.
    pub fn state(&mut self, wanted: StateParts) -> TraceState {
        let tables = std::mem::take(&mut self.tables);
        let state = self.state_of(&tables, wanted);
        self.tables = tables;
        state
    }

    /// The states at the poll before the last one and at the last one, with the sites: a look from
    /// outside that was taken between them saw everything that is in both.
    pub fn states_around(&mut self, wanted: StateParts) -> (TraceState, TraceState) {
        let last = self.state(wanted);
        let Some(tables) = self.before.take() else {
            return (last.clone(), last);
        };
        let before = self.state_of(&tables, wanted);
        self.before = Some(tables);
        (before, last)
    }

    /// Everything that the trace has found. With `has_ended` its processes do nothing more.
    pub fn finish(&mut self, detail: SiteDetail, has_ended: bool) -> Result<TraceState, Error> {
        let wanted = StateParts {
            lifetimes: Some(detail),
            is_end: has_ended,
            ..StateParts::default()
        };
        let tables = self.tables()?;
        let state = self.state_of(&tables, wanted);
        let pump = self.listener.polled(true);
        let (hazards, mut gaps) = pump.hazards(&mut self.symbols);
        gaps.extend(state.gaps);
        Ok(TraceState {
            hazards,
            gaps,
            piles: pump.child_piles(&mut self.symbols),
            ..state
        })
    }

    fn state_of(&mut self, tables: &ProcessTables, wanted: StateParts) -> TraceState {
        let (symbols, is_end) = (&mut self.symbols, wanted.is_end);
        let mut processes = Vec::new();
        if let Some(detail) = wanted.lifetimes {
            let unnamed = self.listener.polled(is_end).unnamed().into_iter();
            processes.extend(unnamed.map(|process| process.name(symbols, detail)));
            // A process that became a program that does not record is not what it was. One that
            // fdguard attached to is reported as it was until then.
            let keeps_roots = self.source.unloaded() == BlindReason::Replaced;
            let is_outlived = |one: &crate::TracedProcess| {
                let is_kept = keeps_roots && self.roots.contains(&one.pid);
                !is_kept && self.outlived.contains(&one.key())
            };
            processes.retain(|one| !is_outlived(one));
        }
        let (hazards, mut gaps) = match wanted.hazards {
            true => self.listener.polled(is_end).hazards(symbols),
            false => Default::default(),
        };
        gaps.extend(source_gaps(&*self.source, tables, &processes));
        let sites = tables.latest().filter(|_| wanted.sites);
        TraceState {
            sites: sites
                .map(|table| OpenSites::new(tables, table, symbols, wanted.callers))
                .collect(),
            processes,
            hazards,
            piles: Vec::new(),
            gaps,
            scope: self.scope(tables),
            read_at: tables.read_at,
            now: (monotonic(), Timestamp::now()),
        }
    }

    fn scope(&self, tables: &ProcessTables) -> TraceScope {
        let mut became = self.listener.pump().children.became().clone();
        became.extend(self.became.clone());
        became.retain(|pid, _| !self.source.follows(*pid));
        TraceScope {
            backend: self.source.backend(),
            is_late: self.source.is_late(),
            blind: self.source.blind(),
            became,
            recorded: self.recorded.clone(),
            recording: tables.latest().map(|table| table.pid).collect(),
            lost_events: tables.lost_events(),
            lost_stacks: tables.iter().map(|table| table.lost_stacks).sum(),
        }
    }

    /// The program was asked to end: its end begins now.
    pub fn end_begins(&self) {
        let mut pump = self.listener.polled(false);
        pump.lifetimes.end_begins(monotonic());
    }

    /// It was asked to end, but continues.
    pub fn end_is_off(&self) {
        self.listener.pump().lifetimes.end_is_off();
    }

    /// Examines processes that do not record: a shell may be another program at the next check, and
    /// cannot be examined after it has ended.
    pub fn examine(&mut self, pids: impl IntoIterator<Item = u32>) {
        let polled = &self.tables;
        for pid in pids
            .into_iter()
            .filter(|pid| polled.table_of(*pid).is_none())
        {
            let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
            let is_new = exe.is_some() && self.examined.get(&pid) != exe.as_ref();
            if is_new && !self.source.is_starting(pid) {
                let untraced = self.source.untraced(pid);
                self.became.extend(untraced.map(|one| (pid, one)));
                self.examined.extend(exe.map(|exe| (pid, exe)));
            }
        }
    }

    /// The programs that its processes became and that do not record, as of the last poll.
    #[must_use]
    pub fn became(&self) -> &BTreeMap<u32, UntracedProgram> {
        &self.became
    }

    /// The lines that opened what a process holds, the one with the most first; empty for a process
    /// that recorded nothing.
    pub fn sites_of(&mut self, pid: u32) -> Result<Vec<Site>, Error> {
        let tables = self.tables()?;
        let table = tables.table_of(pid);
        let sites = table.map(|table| OpenSites::new(&tables, table, &mut self.symbols, false));
        Ok(sites.map(|one| one.sites).unwrap_or_default())
    }

    /// The line that used each descriptor of a process last, where that is recorded.
    pub fn last_uses(&mut self, pid: u32) -> Result<BTreeMap<u32, Culprit>, Error> {
        let tables = self.tables()?;
        let users = tables.table_of(pid).map(|table| {
            let mut named: HashMap<u32, Option<Culprit>> = HashMap::new();
            let users = table.users.iter().filter_map(|(fd, stack)| {
                let culprit = named.entry(*stack).or_insert_with(|| {
                    Culprit::from_stack(&self.symbols.name(&table.raw_frames(*stack)))
                });
                Some((*fd, culprit.clone()?))
            });
            users.collect()
        });
        Ok(users.unwrap_or_default())
    }

    /// Processes that wait until their heap was walked, and since when.
    pub(crate) fn waiting(&self) -> Vec<(TraceKey, SystemTime)> {
        self.source.waiting()
    }

    /// Lets such a process go on.
    pub(crate) fn release(&self, key: TraceKey) {
        self.source.release(key);
    }

    /// No heap will be walked any more: no process waits for that from now on.
    pub(crate) fn release_all(&self) {
        self.source.release_all();
    }

    /// The command name of a process at its start, as of the last poll.
    pub(crate) fn comm_of(&self, pid: u32) -> Option<String> {
        self.tables.table_of(pid).map(|table| table.comm.clone())
    }

    /// How many descriptors each process has open that it opened itself, as of the last poll.
    #[must_use]
    pub fn open_counts(&self) -> Vec<(u32, usize)> {
        let tables = self.tables.latest();
        tables
            .map(|table| {
                let own = table.open.values().filter(|one| one.forks == 0);
                (table.pid, own.count())
            })
            .collect()
    }

    /// The same for one of them.
    #[must_use]
    pub fn open_count(&self, pid: u32) -> usize {
        let counts = self.open_counts().into_iter();
        counts
            .filter(|(of, _)| *of == pid)
            .map(|(_, count)| count)
            .sum()
    }

    /// Every line that started children, with the start times (monotonic clock) of those that were
    /// not waited for so far.
    pub fn child_lines(&mut self) -> Vec<(ChildPile, Vec<u64>)> {
        self.listener.polled(false).child_lines(&mut self.symbols)
    }

    /// The line that started one of its processes: that of its starter, or of the nearest ancestor
    /// with a line in the program's own code. `None` for the first one, and for one whose start was
    /// not seen.
    pub fn child_origin(&mut self, pid: u32) -> Option<Origin> {
        let pump = self.listener.polled(false);
        pump.child_origin(pid, &mut self.symbols)
    }

    /// How many events of its processes were prevented from doing harm, as far as they were read:
    /// cheap, and correct at any moment.
    #[must_use]
    pub fn prevented(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.listener.prevented)
    }

    /// Frees the symbols until they are needed again: they take memory.
    pub fn free_symbols(&mut self) {
        self.symbols = Symbols::new();
    }
}
