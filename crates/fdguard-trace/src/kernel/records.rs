//! Applies the kernel's events to tables of descriptors, and writes down what happened in each
//! process. Pure: `/proc` is read elsewhere.

mod changes;
mod children;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fdguard_core::TraceKey;
use fdguard_kernel::{KernelEvent, Occurrence};

use super::fd_table::FdTable;
use super::process::{RecordedProcess, TableId};
use super::stack_store::StackStore;
use super::table_set::TableSet;
use crate::ring::DrainedEvents;
use crate::table::ProcessTable;

/// What every traced process opened and closed.
#[derive(Debug)]
pub(super) struct KernelRecords {
    /// fdguard itself: of its events only the start of a program matters.
    own: u32,
    processes: BTreeMap<TraceKey, RecordedProcess>,
    /// The program that each process runs now.
    current: HashMap<u32, TraceKey>,
    tables: TableSet,
    changes: Vec<ProcessChange>,
    /// What processes whose records were removed could not see.
    unseen: UnseenCounts,
}

/// What happened to processes, for those who read more about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessChange {
    /// An event came of a process that was running before.
    Found(TraceKey),
    /// It was forked.
    Forked {
        /// The parent.
        parent: TraceKey,
        /// The child.
        child: TraceKey,
    },
    /// It executed a program.
    Executed(TraceKey),
    /// It has ended, or executed another program.
    Over(TraceKey),
}

/// What was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UnseenCounts {
    /// Descriptors whose open was not reported.
    pub(super) opens: u64,
    /// Events of threads with a table of their own.
    pub(super) foreign: u64,
}

impl KernelRecords {
    /// Nothing recorded yet. `own` is fdguard's process.
    pub(super) fn new(own: u32) -> Self {
        Self {
            own,
            processes: BTreeMap::new(),
            current: HashMap::new(),
            tables: TableSet::default(),
            changes: Vec::new(),
            unseen: UnseenCounts::default(),
        }
    }

    /// The numbers that were open in a process before its first event.
    pub(super) fn add_before(&mut self, key: TraceKey, fds: impl IntoIterator<Item = u32>) {
        let Some(process) = self.processes.get_mut(&key) else {
            return;
        };
        process.is_attached = true;
        if let Some(shared) = self.tables.get_mut(process.table) {
            fds.into_iter().for_each(|fd| shared.table.add_before(fd));
        }
    }

    /// Sets the name of a program.
    pub(super) fn name(&mut self, key: TraceKey, comm: String) {
        if let Some(process) = self.processes.get_mut(&key) {
            process.comm = comm;
        }
    }

    /// What happened to processes since the last time.
    pub(super) fn take_changes(&mut self) -> Vec<ProcessChange> {
        std::mem::take(&mut self.changes)
    }

    /// The program that a process runs now.
    pub(super) fn current(&self, pid: u32) -> Option<TraceKey> {
        self.current.get(&pid).copied()
    }

    /// Applies one event.
    pub(super) fn apply(&mut self, event: &KernelEvent) {
        if event.pid == self.own {
            if let Occurrence::Forked { child, .. } = event.what {
                self.launch(child, event.at);
            }
            return;
        }
        match &event.what {
            Occurrence::Forked {
                child,
                child_table,
                open,
            } => self.fork(event, (*child, *child_table), open.as_deref()),
            Occurrence::Unshared { open, .. } => self.unshare(event, open.as_deref()),
            Occurrence::Executed { open } => self.execute(event, open),
            Occurrence::Exited => self.end(event.pid),
            // Stacks are unwound elsewhere.
            Occurrence::Stack(_) | Occurrence::Mapped(_) => {}
            _ => {
                if let Some(table) = self.table_of(event) {
                    self.change(table, event);
                }
            }
        }
    }

    /// The table that an event is about; `None` for one that only some thread has.
    fn table_of(&mut self, event: &KernelEvent) -> Option<TableId> {
        let key = self.ensure(event.pid, event.at)?;
        let process = self.processes.get_mut(&key)?;
        process.has_threads |= event.tid != event.pid;
        let own = process.table;
        let address = self.tables.get(own).and_then(|shared| shared.address);
        let known = self.tables.at(event.table);
        match (known, address) {
            (Some(known), _) if known == own => Some(own),
            // Its first event: it shares the table of a process that is known.
            (Some(known), None) => {
                self.move_to(key, known);
                Some(known)
            }
            (None, None) => {
                self.tables.bind(own, event.table);
                Some(own)
            }
            // The first thread left the table that it shared: it has a copy.
            (_, Some(_)) if event.tid == event.pid => {
                let copy = self.tables.get(own).map(|shared| shared.table.clone());
                let table = match known {
                    Some(known) => known,
                    None => self.tables.add(copy.unwrap_or_default()),
                };
                self.move_to(key, table);
                self.tables.bind(table, event.table);
                Some(table)
            }
            (_, Some(_)) => {
                process.foreign += 1;
                None
            }
        }
    }

    /// A thread has a table of its own from now on. If it is the first of its process, that is the
    /// process's.
    fn unshare(&mut self, event: &KernelEvent, open: Option<&[u32]>) {
        if event.tid != event.pid {
            return;
        }
        let Some(key) = self.ensure(event.pid, event.at) else {
            return;
        };
        let before = self.table_id(event.pid);
        let shared = before.and_then(|table| self.tables.get(table));
        let mut copy = shared
            .map(|shared| shared.table.clone())
            .unwrap_or_default();
        if let Some(open) = open {
            copy.keep_only(open);
        }
        let table = self.tables.add(copy);
        self.move_to(key, table);
        self.tables.bind(table, event.table);
    }

    fn fork(
        &mut self,
        event: &KernelEvent,
        (child, child_table): (u32, u64),
        open: Option<&[u32]>,
    ) {
        let Some(table) = self.table_of(event) else {
            return;
        };
        let Some(parent) = self.current(event.pid) else {
            return;
        };
        self.note_fork(event, child);
        if child_table == event.table {
            self.end(child);
            let key = self.key(child, event.at);
            let process = RecordedProcess::new(key, Some(parent), table);
            self.insert(process);
        } else {
            let shared = self.tables.get(table);
            let copy = shared.map(|one| one.table.copy_for_child());
            let mut copy = copy.unwrap_or_default();
            if let Some(open) = open {
                copy.keep_only(open);
            }
            self.begin(child, event.at, Some(parent), copy);
            if let Some(table) = self.table_id(child) {
                self.tables.bind(table, child_table);
            }
        }
        let (from, comm) = match self.processes.get(&parent) {
            Some(parent) => (parent.is_launching, parent.comm.clone()),
            None => return,
        };
        let Some(child) = self.current(child) else {
            return;
        };
        if let Some(process) = self.processes.get_mut(&child) {
            process.is_launching = from;
            process.comm = comm;
        }
        self.changes.push(ProcessChange::Forked { parent, child });
    }

    /// fdguard starts a program.
    fn launch(&mut self, pid: u32, at: u64) {
        let key = self.begin(pid, at, None, FdTable::default());
        if let Some(process) = self.processes.get_mut(&key) {
            process.is_launching = true;
        }
    }

    fn execute(&mut self, event: &KernelEvent, open: &[u32]) {
        let before = self.current(event.pid);
        self.end(event.pid);
        // A child that did nothing before its exec is of no interest.
        if let Some(before) = before
            && let Some(process) = self.processes.get(&before)
            && (process.is_launching || process.is_blank())
        {
            self.processes.remove(&before);
        }
        let table = FdTable::opened_before(open.iter().copied());
        let key = self.begin(event.pid, event.at, None, table);
        if let Some(table) = self.table_id(event.pid) {
            self.tables.bind(table, event.table);
        }
        self.changes.push(ProcessChange::Executed(key));
    }

    /// The program of a process is over: it has ended, or executed another one.
    pub(super) fn end(&mut self, pid: u32) {
        let Some(key) = self.current.remove(&pid) else {
            return;
        };
        let Some(process) = self.processes.get_mut(&key) else {
            return;
        };
        process.last_table = self.tables.leave(process.table, pid);
        if process.is_launching {
            self.processes.remove(&key);
        }
        self.changes.push(ProcessChange::Over(key));
    }

    fn begin(&mut self, pid: u32, at: u64, parent: Option<TraceKey>, table: FdTable) -> TraceKey {
        // If the end of an earlier process with this number was not reported, it is over now.
        self.end(pid);
        let table = self.tables.add(table);
        let key = self.key(pid, at);
        self.insert(RecordedProcess::new(key, parent, table));
        key
    }

    /// A key that is later than those of earlier programs of the process.
    fn key(&self, pid: u32, at: u64) -> TraceKey {
        let (first, last) = (
            TraceKey { pid, began: 0 },
            TraceKey {
                pid,
                began: u64::MAX,
            },
        );
        let earlier = self.processes.range(first..=last).next_back();
        let after = earlier.map_or(0, |(key, _)| key.began.saturating_add(1));
        let began = at.max(after);
        TraceKey { pid, began }
    }

    fn insert(&mut self, process: RecordedProcess) {
        let pid = process.key.pid;
        self.tables.join(process.table, pid);
        self.current.insert(pid, process.key);
        self.processes.insert(process.key, process);
    }

    fn table_id(&self, pid: u32) -> Option<TableId> {
        let key = self.current.get(&pid)?;
        self.processes.get(key).map(|process| process.table)
    }

    fn move_to(&mut self, key: TraceKey, table: TableId) {
        let Some(process) = self.processes.get_mut(&key) else {
            return;
        };
        let left = std::mem::replace(&mut process.table, table);
        self.tables.leave(left, key.pid);
        self.tables.join(table, key.pid);
    }

    /// Events were lost, of unknown processes: all of them are doubtful.
    pub(super) fn lose(&mut self, count: u64) {
        let mut is_first = true;
        for key in self.current.values() {
            if let Some(process) = self.processes.get_mut(key) {
                process.lose(count, std::mem::take(&mut is_first));
            }
        }
    }

    /// Processes whose tables are worth a comparison: see [`TableSet::unchecked`].
    pub(super) fn unchecked(&self, quiet: u64, old: u64) -> Vec<u32> {
        self.tables.unchecked(quiet, old)
    }

    fn is_launching(&self, pid: u32) -> bool {
        let process = self.current(pid).and_then(|key| self.processes.get(&key));
        process.is_some_and(|process| process.is_launching)
    }

    /// The program that a process runs now; one that is not known begins.
    pub(super) fn ensure(&mut self, pid: u32, at: u64) -> Option<TraceKey> {
        if pid == self.own {
            return None;
        }
        let known = self.current(pid);
        Some(known.unwrap_or_else(|| {
            let key = self.begin(pid, at, None, FdTable::default());
            self.changes.push(ProcessChange::Found(key));
            key
        }))
    }

    /// When the table of a process last changed.
    pub(super) fn changed(&self, pid: u32) -> Option<u64> {
        let table = self.table_id(pid)?;
        self.tables.get(table).map(|shared| shared.changed)
    }

    /// Every program with records, sorted.
    pub(super) fn keys(&self) -> Vec<TraceKey> {
        let shown = self.processes.values().filter(|one| !one.is_launching);
        shown.map(|one| one.key).collect()
    }

    pub(super) fn has(&self, key: TraceKey) -> bool {
        self.processes.contains_key(&key)
    }

    /// The processes that run.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.current.keys().copied().collect()
    }

    /// Whether the program of this key is over.
    pub(super) fn is_over(&self, key: TraceKey) -> bool {
        self.processes
            .get(&key)
            .is_none_or(RecordedProcess::is_over)
    }

    /// Takes the events of a program; `None` if it is unknown.
    pub(super) fn drain(
        &mut self,
        key: TraceKey,
        stacks: &StackStore,
        is_end: bool,
    ) -> Option<DrainedEvents> {
        let process = self.processes.get_mut(&key)?;
        Some(process.drain(stacks, is_end))
    }

    /// How many events of a program wait to be taken.
    pub(super) fn waiting(&self, key: TraceKey) -> usize {
        self.processes.get(&key).map_or(0, RecordedProcess::waiting)
    }

    /// Counts them as lost instead.
    pub(super) fn drop_waiting(&mut self, key: TraceKey) {
        if let Some(process) = self.processes.get_mut(&key) {
            process.drop_waiting();
        }
    }

    /// The stacks on their way that events of a program wait for.
    pub(super) fn pending(&self, key: TraceKey, stacks: &StackStore) -> Vec<u32> {
        let process = self.processes.get(&key);
        process.map_or_else(Vec::new, |process| process.pending(stacks))
    }

    /// What a program holds, or held at its end.
    pub(super) fn table(&self, key: TraceKey, stacks: &Arc<StackStore>) -> Option<ProcessTable> {
        let process = self.processes.get(&key)?;
        let live = || self.tables.get(process.table).map(|one| &one.table);
        let table = process.last_table.as_ref().or_else(live)?;
        Some(process.table(table, stacks))
    }

    /// Removes the records of a program that is over.
    pub(super) fn remove(&mut self, key: TraceKey) {
        if let Some(process) = self.processes.get(&key).filter(|one| one.is_over()) {
            self.unseen.opens += process.unseen_opens;
            self.unseen.foreign += process.foreign;
            self.processes.remove(&key);
        }
    }

    /// What was not seen.
    pub(super) fn unseen(&self) -> UnseenCounts {
        let add = |counts: UnseenCounts, one: &RecordedProcess| UnseenCounts {
            opens: counts.opens + one.unseen_opens,
            foreign: counts.foreign + one.foreign,
        };
        self.processes.values().fold(self.unseen, add)
    }
}

#[cfg(test)]
mod tests;
