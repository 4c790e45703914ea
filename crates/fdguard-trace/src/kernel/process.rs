//! What the events say of one program in one process.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use fdguard_core::TraceKey;
use fdguard_wire::{Account, EventKind, EventRecord};

use super::fd_table::{FdTable, TableEntry};
use super::stack_store::StackStore;
use crate::ring::DrainedEvents;
use crate::table::{ProcessTable, TableContents};

/// The most events of a process that wait to be read.
const MOST_WAITING: usize = 1 << 19;

/// The most that are taken at once while it runs: others wait for the thread that takes them.
const MOST_TAKEN: usize = 1 << 14;

/// Identifies a table of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TableId(pub(super) u64);

/// One program in one process.
#[derive(Debug)]
pub(super) struct RecordedProcess {
    pub(super) key: TraceKey,
    pub(super) parent: Option<TraceKey>,
    pub(super) comm: String,
    pub(super) table: TableId,
    /// The table as it was when the program ended, or executed another one.
    pub(super) last_table: Option<FdTable>,
    /// It ran before the trace.
    pub(super) is_attached: bool,
    /// fdguard starts it and it has not executed its program yet: nothing of it counts.
    pub(super) is_launching: bool,
    /// It has, or had, more than one thread.
    pub(super) has_threads: bool,
    /// The last child that each thread forked, until the call has returned.
    pub(super) forks: HashMap<u32, u32>,
    /// Its children, by the numbers that it knows them by.
    pub(super) children: HashMap<u32, u32>,
    /// Events of threads that have a table of their own.
    pub(super) foreign: u64,
    pub(super) unseen_opens: u64,
    unseen_closes: u64,
    lost_events: u64,
    accounts: HashMap<u32, Account>,
    closed: BTreeSet<u32>,
    last: Option<u64>,
    waiting: VecDeque<EventRecord>,
    next_ticket: u64,
    newly_lost: u64,
}

impl RecordedProcess {
    pub(super) fn new(key: TraceKey, parent: Option<TraceKey>, table: TableId) -> Self {
        Self {
            key,
            parent,
            comm: String::new(),
            table,
            last_table: None,
            is_attached: false,
            is_launching: false,
            has_threads: false,
            forks: HashMap::new(),
            children: HashMap::new(),
            foreign: 0,
            unseen_opens: 0,
            unseen_closes: 0,
            lost_events: 0,
            accounts: HashMap::new(),
            closed: BTreeSet::new(),
            last: None,
            waiting: VecDeque::new(),
            next_ticket: 0,
            newly_lost: 0,
        }
    }

    /// Whether it has ended, or executed another program.
    pub(super) fn is_over(&self) -> bool {
        self.last_table.is_some()
    }

    /// Whether nothing ever happened in it.
    pub(super) fn is_blank(&self) -> bool {
        self.next_ticket == 0 && self.newly_lost == 0
    }

    pub(super) fn push(&mut self, record: EventRecord) {
        self.last = Some(record.ns);
        if self.is_launching {
            return;
        }
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.pop_front();
            self.newly_lost += 1;
            self.lost_events += 1;
        }
        self.waiting.push_back(record);
        self.next_ticket += 1;
    }

    pub(super) fn note_open(&mut self, fd: u32, stack: u32) {
        self.closed.remove(&fd);
        self.accounts.entry(stack).or_default().opened += 1;
    }

    pub(super) fn note_close(&mut self, fd: u32, entry: &TableEntry, at: u64) {
        self.closed.insert(fd);
        let Some(opened) = entry.opened.filter(|one| one.forks == 0) else {
            return;
        };
        let since = opened.ns.saturating_sub(self.key.began);
        let lived = at.saturating_sub(opened.ns);
        let account = self.accounts.entry(opened.stack).or_default();
        *account = account.and(Account {
            opened: 0,
            closed: 1,
            closed_opened_at: since,
            closed_lived: lived,
            closed_longest: lived,
            closed_youngest: since,
        });
    }

    /// A close was not reported.
    pub(super) fn note_unseen_close(&mut self) {
        self.unseen_closes += 1;
    }

    /// Another stack opened a descriptor than was believed.
    pub(super) fn note_reassigned(&mut self, before: u32, now: u32) {
        if let Some(account) = self.accounts.get_mut(&before) {
            account.opened = account.opened.saturating_sub(1);
        }
        self.accounts.entry(now).or_default().opened += 1;
    }

    /// Events were lost, perhaps of this process. They are counted for one process only; for the
    /// others one loss is enough to doubt what they recorded.
    pub(super) fn lose(&mut self, count: u64, is_counted: bool) {
        self.newly_lost += if is_counted { count } else { 1 };
        if is_counted {
            self.lost_events += count;
        }
    }

    /// How many events wait to be taken.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Counts them as lost instead.
    pub(super) fn drop_waiting(&mut self) {
        let count = self.waiting.len() as u64;
        self.waiting.clear();
        self.newly_lost += count;
        self.lost_events += count;
    }

    /// The stacks on their way that its events wait for.
    pub(super) fn pending(&self, stacks: &StackStore) -> Vec<u32> {
        let numbers = self.waiting.iter().map(|record| record.stack);
        numbers
            .filter(|number| *number != 0 && stacks.is_pending(*number))
            .collect()
    }

    /// Takes what has happened, up to the first event whose stack is on its way, and not too much
    /// at once. At the end nothing is left behind.
    pub(super) fn drain(&mut self, stacks: &StackStore, is_end: bool) -> DrainedEvents {
        let is_ready = |record: &EventRecord| record.stack == 0 || !stacks.is_pending(record.stack);
        let some = self.waiting.iter().take(MOST_TAKEN);
        let ready = some.take_while(|one| is_ready(one)).count();
        let count = if is_end { self.waiting.len() } else { ready };
        let behind = self.waiting.len() as u64;
        let first = self.next_ticket - behind;
        let next = first + count as u64;
        DrainedEvents {
            events: self.waiting.drain(..count).collect(),
            tickets: (first..next).collect(),
            next,
            lost: std::mem::take(&mut self.newly_lost),
            behind,
            is_forked: self.parent.is_some(),
            ..DrainedEvents::default()
        }
    }

    /// Its table as a value.
    pub(super) fn table(&self, table: &FdTable, stacks: &Arc<StackStore>) -> ProcessTable {
        ProcessTable::recorded(TableContents {
            key: self.key,
            comm: self.comm.clone(),
            parent: self.parent,
            open: table.opened().collect::<BTreeMap<_, _>>(),
            closed: self.closed.clone(),
            accounts: self.accounts.clone(),
            inherited: table.before().collect(),
            is_attached: self.is_attached,
            lost_events: self.lost_events,
            unseen_closes: self.unseen_closes,
            last: self.last,
            stacks: Arc::clone(stacks),
        })
    }
}

/// A record of a process, without more than this.
pub(super) fn record(kind: EventKind, (at, tid): (u64, u32), fd: u32) -> EventRecord {
    EventRecord {
        kind,
        code: 0,
        errno: 0,
        tid,
        ns: at,
        fd,
        stack: 0,
        more: [0; 2],
    }
}
