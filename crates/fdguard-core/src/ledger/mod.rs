//! The ledger: events become lifetimes, one table for each process.
//!
//! It knows what is open and which thread opened it, which thread closed the earlier descriptors of
//! a number, and which places in the code hold most. It never fails: a close without an open was
//! opened before tracing or inside a library, an open at a used number means that a close was
//! missed, and after lost events the past is dropped because nothing can be concluded from it.

mod lifetime;
mod reconcile;
mod slot;
mod table;
mod tally;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

pub use lifetime::{Actor, ClosedFd, FdLifetime, Generation};
pub use reconcile::{FdProvenance, ObservedFd, Reconciliation};
pub use slot::FdSlot;
pub(crate) use table::EventNotes;
use table::Table;
pub use tally::Tally;

use crate::event::{CloseCall, Errno, OpenCall, TraceEvent, What};
use crate::{Fd, TraceKey};

/// The most exited processes that are remembered, with what they had open.
const MOST_ENDED: usize = 64;

/// The most running processes that are kept; beyond that, the one that began first is dropped,
/// because its exit was missed.
const MOST_PROCESSES: usize = 4096;

/// The ledger of a trace.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    tables: BTreeMap<u64, Table>,
    /// Which table a process uses: several, if they share it.
    processes: BTreeMap<TraceKey, u64>,
    next_table: u64,
    ended: VecDeque<(TraceKey, Vec<Tally>)>,
    lost: u64,
    unseen_opens: u64,
}

impl Ledger {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies the next event.
    pub fn apply(&mut self, event: &TraceEvent) {
        self.apply_with_notes(event, EventNotes::default());
    }

    /// Applies the next event, with what the hazard detector concluded about it.
    pub(crate) fn apply_with_notes(&mut self, event: &TraceEvent, notes: EventNotes) {
        let process = event.process;
        match &event.what {
            What::Open { .. } => self.open(event),
            What::Close { fd, call, errno } => self.close(event, *fd, *call, *errno, notes),
            What::CloseRange {
                first,
                last,
                at_exec,
            } => self.close_range(event, (*first, *last), *at_exec),
            What::Cloexec { fd, on } => {
                if let Some(life) = self.table_mut(process).current_mut(*fd) {
                    life.cloexec = *on;
                }
            }
            What::Use { .. } if notes.is_stale => {}
            What::Use { fd, errno, .. } => self.note_use(event, *fd, *errno),
            What::Lock { fd, .. } => {
                if let Some(life) = self.table_mut(process).current_mut(*fd) {
                    life.users.add(event.thread);
                }
            }
            What::File { fd, file } => {
                if let Some(life) = self.table_mut(process).current_mut(*fd) {
                    life.file = Some(*file);
                }
            }
            What::Reassigned { fd } => self.table_mut(process).reassign(*fd, event.stack),
            What::Fork {
                child,
                shares_table,
            } => self.fork(process, *child, *shares_table),
            What::Exec { kept } => self.exec(process, kept.as_deref()),
            What::Exit => self.exit(process),
            What::Lost { count } => {
                self.lost = self.lost.saturating_add(*count);
                self.table_mut(process).doubt();
            }
            What::Missing => self.table_mut(process).doubt(),
            What::Forked => self.table_mut(process).begin_as_copy(),
            // Entering a call proves nothing yet: the number may be stale.
            What::Enter { .. }
            | What::Leave
            | What::CloseReturned { .. }
            | What::Locking { .. }
            | What::Shutdown { .. }
            | What::Refused { .. }
            | What::Select { .. }
            | What::Threaded => {}
        }
    }

    /// Applies an event that is reported after later ones. Only opens and closes are used then, and
    /// only if nothing newer is known about their number.
    pub(crate) fn apply_late(&mut self, event: &TraceEvent) {
        let (What::Open { fd, .. } | What::Close { fd, .. }) = event.what else {
            return;
        };
        let slot = self.slot(event.process, fd);
        let opened = slot.and_then(FdSlot::current).and_then(|life| life.opener);
        let closed = slot
            .and_then(|slot| slot.past().next())
            .and_then(|past| past.closer);
        let is_newer = |actor: Option<Actor>| actor.is_some_and(|actor| actor.at >= event.at);
        let is_known = match event.what {
            What::Open { .. } => is_newer(opened) || is_newer(closed),
            // It fills a gap in the past of the number, if there is one.
            _ => is_newer(closed),
        };
        if !is_known {
            self.apply(event);
            self.table_mut(event.process).doubt_number(fd);
        }
    }

    /// What a process has open, by number.
    pub fn live(&self, process: TraceKey) -> impl Iterator<Item = (Fd, &FdLifetime)> {
        self.table(process).into_iter().flat_map(Table::live)
    }

    /// A number of a process.
    #[must_use]
    pub fn slot(&self, process: TraceKey, fd: Fd) -> Option<&FdSlot> {
        self.table(process)?.slot(fd)
    }

    /// The closed descriptors of this number, the latest first.
    pub fn closes_of(&self, process: TraceKey, fd: Fd) -> impl Iterator<Item = &ClosedFd> {
        self.slot(process, fd).into_iter().flat_map(FdSlot::past)
    }

    /// The sites, those with most open first. For an exited process: as it was just before.
    #[must_use]
    pub fn origins(&self, process: TraceKey) -> Vec<Tally> {
        if let Some(table) = self.table(process) {
            return table.tallies();
        }
        let ended = self.ended.iter().rev().find(|(key, _)| *key == process);
        ended
            .map(|(_, tallies)| tallies.clone())
            .unwrap_or_default()
    }

    /// The running processes.
    pub fn processes(&self) -> impl Iterator<Item = TraceKey> {
        self.processes.keys().copied()
    }

    /// Whether these two share one table.
    #[must_use]
    pub fn share_table(&self, a: TraceKey, b: TraceKey) -> bool {
        let (a, b) = (self.processes.get(&a), self.processes.get(&b));
        a.is_some() && a == b
    }

    /// Whether this process opened anything after this time.
    #[must_use]
    pub fn has_opened_since(&self, process: TraceKey, at: u64) -> bool {
        self.table(process)
            .is_some_and(|table| table.opened_at() > at)
    }

    /// Whether nothing was ever open at this number of a process, provided that its whole history
    /// is known.
    #[must_use]
    pub fn was_never_open(&self, process: TraceKey, fd: Fd) -> bool {
        // A process without events has no table.
        self.table(process)
            .is_none_or(|table| table.was_never_open(fd))
    }

    /// How many events were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How many descriptors were closed whose open was not seen.
    #[must_use]
    pub fn unseen_opens(&self) -> u64 {
        self.unseen_opens
    }

    fn table(&self, process: TraceKey) -> Option<&Table> {
        self.tables.get(self.processes.get(&process)?)
    }

    fn table_mut(&mut self, process: TraceKey) -> &mut Table {
        let id = match self.processes.get(&process) {
            Some(id) => *id,
            None => self.adopt(process, Table::default()),
        };
        self.tables.entry(id).or_default()
    }

    /// Gives a process its own table.
    fn adopt(&mut self, process: TraceKey, table: Table) -> u64 {
        self.leave(process);
        let oldest = || self.processes.iter().min_by_key(|(_, id)| **id);
        if self.processes.len() >= MOST_PROCESSES
            && let Some((oldest, _)) = oldest()
        {
            self.leave(*oldest);
        }
        let id = self.next_table;
        self.next_table += 1;
        self.tables.insert(id, table);
        self.processes.insert(process, id);
        id
    }

    /// Detaches a process from its table; returns the table if it was the last user.
    fn leave(&mut self, process: TraceKey) -> Option<Table> {
        let id = self.processes.remove(&process)?;
        if self.processes.values().any(|other| *other == id) {
            return None;
        }
        self.tables.remove(&id)
    }

    fn open(&mut self, event: &TraceEvent) {
        let What::Open {
            fd,
            call,
            class,
            file,
            cloexec,
        } = &event.what
        else {
            return;
        };
        let life = FdLifetime {
            opener: Some(actor(event)),
            call: *call,
            class: class.clone(),
            file: *file,
            cloexec: *cloexec,
            ..unseen()
        };
        self.table_mut(event.process).open(*fd, life);
    }

    fn close(
        &mut self,
        event: &TraceEvent,
        fd: Fd,
        call: CloseCall,
        errno: Option<Errno>,
        notes: EventNotes,
    ) {
        let closer = actor(event);
        let table = self.table_mut(event.process);
        let current = table.slot(fd).and_then(FdSlot::current);
        if errno == Some(Errno::Ebadf) {
            // The kernel is right: if the ledger still has it open, its close was missed.
            table.close(fd, None, CloseCall::Unknown, EventNotes::default());
            return;
        }
        match current {
            Some(life) if life.opener.is_some_and(|opener| event.at < opener.at) => {
                table.close_late(fd, closer, call);
            }
            Some(_) => {
                table.close(fd, Some(closer), call, notes);
            }
            None => {
                table.close_unknown(fd, unseen(), closer, call);
                self.unseen_opens = self.unseen_opens.saturating_add(1);
            }
        }
    }

    fn close_range(&mut self, event: &TraceEvent, (first, last): (Fd, Fd), at_exec: bool) {
        let closer = actor(event);
        let table = self.table_mut(event.process);
        if !at_exec {
            table.sweep(first, last);
        }
        for fd in table.live_within(first..=last) {
            if !at_exec {
                table.close(
                    fd,
                    Some(closer),
                    CloseCall::CloseRange,
                    EventNotes::default(),
                );
            } else if let Some(life) = table.current_mut(fd) {
                life.cloexec = true;
            }
        }
    }

    /// A use makes its thread a user. A use that succeeds where nothing is known to be open proves
    /// that an open was missed, and that the remembered past of the number is not the latest.
    fn note_use(&mut self, event: &TraceEvent, fd: Fd, errno: Option<Errno>) {
        let table = self.table_mut(event.process);
        match table.current_mut(fd) {
            Some(_) if errno == Some(Errno::Ebadf) => {}
            Some(life) => life.users.add(event.thread),
            None if errno.is_none() => table.forget_past_of(fd),
            None => {}
        }
    }

    fn fork(&mut self, parent: TraceKey, child: TraceKey, shares_table: bool) {
        if parent == child {
            return;
        }
        if shares_table {
            self.table_mut(parent);
            if let Some(id) = self.processes.get(&parent).copied() {
                self.leave(child);
                self.processes.insert(child, id);
            }
        } else {
            let table = self.table_mut(parent).fork();
            self.adopt(child, table);
        }
    }

    /// Exec ends sharing before it closes.
    fn exec(&mut self, process: TraceKey, kept: Option<&[Fd]>) {
        let id = self.processes.get(&process).copied();
        let sharers = self.processes.values().filter(|other| Some(**other) == id);
        if sharers.count() > 1 {
            let own = self.table_mut(process).clone();
            self.adopt(process, own);
        }
        self.table_mut(process).exec(kept);
    }

    fn exit(&mut self, process: TraceKey) {
        let tallies = self.table(process).map(Table::tallies);
        self.leave(process);
        if let Some(tallies) = tallies {
            if self.ended.len() == MOST_ENDED {
                self.ended.pop_front();
            }
            self.ended.push_back((process, tallies));
        }
    }
}

fn actor(event: &TraceEvent) -> Actor {
    Actor {
        thread: event.thread,
        stack: event.stack,
        at: event.at,
    }
}

/// A descriptor about which nothing is known.
fn unseen() -> FdLifetime {
    FdLifetime {
        generation: 0,
        opener: None,
        call: OpenCall::Unknown,
        class: None,
        file: None,
        cloexec: false,
        inherited: false,
        users: lifetime::Users::default(),
    }
}
