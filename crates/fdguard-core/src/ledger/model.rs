//! The same bookkeeping in the simplest form: every descriptor that ever existed, in one list.

use super::{Actor, Generation, Ledger};
use crate::event::{CloseCall, Errno, StackId, TraceEvent, What};
use crate::{Fd, TraceKey};

#[derive(Clone, Debug)]
struct Entry {
    fd: Fd,
    opener: Option<Actor>,
    cloexec: bool,
    inherited: bool,
    /// Whether it was ever seen open.
    was_open: bool,
    /// Its place in the order of closes, the closer, and the call.
    close: Option<(u64, Option<Actor>, CloseCall)>,
    is_forgotten: bool,
}

/// The model: tables as lists, and which process has which.
#[derive(Debug, Default)]
pub(super) struct Model {
    tables: Vec<Vec<Entry>>,
    processes: Vec<(TraceKey, usize)>,
    closes: u64,
}

type Open = (Fd, Option<Actor>, bool, bool);
type ClosedLifetime = (Option<Actor>, Option<Actor>, CloseCall);
type Place = (Option<StackId>, u64, u64, Option<u64>);

impl Model {
    fn table(&mut self, process: TraceKey) -> usize {
        if let Some((_, table)) = self.processes.iter().find(|(key, _)| *key == process) {
            return *table;
        }
        self.give(process, Vec::new())
    }

    fn give(&mut self, process: TraceKey, table: Vec<Entry>) -> usize {
        self.processes.retain(|(key, _)| *key != process);
        self.tables.push(table);
        self.processes.push((process, self.tables.len() - 1));
        self.tables.len() - 1
    }

    fn close_entry(
        &mut self,
        table: usize,
        fd: Fd,
        closer: Option<Actor>,
        call: CloseCall,
    ) -> bool {
        self.closes += 1;
        let mut open = self.tables[table]
            .iter_mut()
            .filter(|entry| entry.close.is_none());
        let found = open.find(|entry| entry.fd == fd);
        let is_found = found.is_some();
        if let Some(entry) = found {
            entry.close = Some((self.closes, closer, call));
        }
        is_found
    }

    pub(super) fn apply(&mut self, event: &TraceEvent) {
        let actor = Actor {
            thread: event.thread,
            stack: event.stack,
            at: event.at,
        };
        let touches = !matches!(
            event.what,
            What::Exit
                | What::Leave
                | What::Enter { .. }
                | What::CloseReturned { .. }
                | What::Locking { .. }
                | What::Shutdown { .. }
                | What::Refused { .. }
                | What::Select { .. }
        );
        let itself = matches!(event.what, What::Fork { child, .. } if child == event.process);
        if !touches || itself {
            if event.what == What::Exit {
                self.processes.retain(|(key, _)| *key != event.process);
            }
            return;
        }
        let table = self.table(event.process);
        match &event.what {
            What::Open { fd, cloexec, .. } => {
                self.close_entry(table, *fd, None, CloseCall::Unknown);
                self.tables[table].push(entry(*fd, Some(actor), *cloexec));
            }
            What::Close { fd, call, errno } => self.close(table, *fd, actor, *call, *errno),
            What::CloseRange {
                first,
                last,
                at_exec,
            } => {
                for fd in *first..=*last {
                    if !*at_exec {
                        self.close_entry(table, fd, Some(actor), CloseCall::CloseRange);
                    }
                    self.mark(table, fd, true);
                }
            }
            What::Cloexec { fd, on } => self.mark(table, *fd, *on),
            What::Use {
                fd, errno: None, ..
            } => self.note_use(table, *fd),
            What::Fork {
                child,
                shares_table,
            } => self.fork(table, *child, *shares_table),
            What::Exec { kept } => self.exec(event.process, kept.as_deref()),
            What::Lost { .. } | What::Missing => self.forget(table),
            _ => {}
        }
    }

    fn close(&mut self, table: usize, fd: Fd, actor: Actor, call: CloseCall, errno: Option<Errno>) {
        if errno == Some(Errno::Ebadf) {
            self.close_entry(table, fd, None, CloseCall::Unknown);
            return;
        }
        let entries = &mut self.tables[table];
        let open = entries
            .iter()
            .find(|entry| entry.fd == fd && entry.close.is_none());
        let is_late =
            open.is_some_and(|entry| entry.opener.is_some_and(|opener| actor.at < opener.at));
        if is_late {
            let closed = entries
                .iter_mut()
                .filter(|entry| entry.fd == fd && !entry.is_forgotten);
            let last = closed
                .filter(|entry| entry.close.is_some())
                .max_by_key(|entry| entry.close.unwrap().0);
            if let Some(Entry {
                close: Some((_, closer @ None, known)),
                ..
            }) = last
            {
                (*closer, *known) = (Some(actor), call);
            }
        } else if !self.close_entry(table, fd, Some(actor), call) {
            let close = Some((self.closes, Some(actor), call));
            let was_open = false;
            self.tables[table].push(Entry {
                close,
                was_open,
                ..entry(fd, None, false)
            });
        }
    }

    fn mark(&mut self, table: usize, fd: Fd, on: bool) {
        for entry in &mut self.tables[table] {
            if entry.fd == fd && entry.close.is_none() {
                entry.cloexec = on;
            }
        }
    }

    fn note_use(&mut self, table: usize, fd: Fd) {
        let of_number = || self.tables[table].iter().filter(|entry| entry.fd == fd);
        if of_number().all(|entry| entry.close.is_some()) {
            for entry in self.tables[table].iter_mut().filter(|entry| entry.fd == fd) {
                entry.is_forgotten = true;
            }
        }
    }

    fn forget(&mut self, table: usize) {
        for entry in &mut self.tables[table] {
            entry.is_forgotten |= entry.close.is_some();
        }
    }

    fn fork(&mut self, table: usize, child: TraceKey, shares_table: bool) {
        if shares_table {
            self.processes.retain(|(key, _)| *key != child);
            self.processes.push((child, table));
            return;
        }
        let mut copy = self.tables[table].clone();
        copy.retain(|entry| entry.close.is_none());
        for entry in &mut copy {
            entry.inherited = true;
        }
        self.give(child, copy);
    }

    fn exec(&mut self, process: TraceKey, kept: Option<&[Fd]>) {
        let table = self.table(process);
        let copy = self.tables[table].clone();
        let table = self.give(process, copy);
        for fd in self.tables[table]
            .iter()
            .map(|entry| entry.fd)
            .collect::<Vec<_>>()
        {
            let open = self.tables[table]
                .iter()
                .find(|entry| entry.fd == fd && entry.close.is_none());
            let Some(open) = open else { continue };
            if kept.map_or(open.cloexec, |kept| !kept.contains(&fd)) {
                self.close_entry(table, fd, None, CloseCall::Exec);
            }
        }
        self.forget(table);
        for entry in &mut self.tables[table] {
            (entry.inherited, entry.cloexec) = (true, false);
        }
    }

    fn entries(&self, process: TraceKey) -> impl Iterator<Item = &Entry> {
        let table = self.processes.iter().find(|(key, _)| *key == process);
        table
            .into_iter()
            .flat_map(|(_, table)| &self.tables[*table])
    }

    fn open(&self, process: TraceKey) -> Vec<Open> {
        let open = self.entries(process).filter(|entry| entry.close.is_none());
        let mut open: Vec<Open> = open
            .map(|entry| (entry.fd, entry.opener, entry.cloexec, entry.inherited))
            .collect();
        open.sort_by_key(|one| one.0);
        open
    }

    fn closed(&self, process: TraceKey, fd: Fd) -> Vec<ClosedLifetime> {
        let of_number = self
            .entries(process)
            .filter(|entry| entry.fd == fd && !entry.is_forgotten);
        let mut closed: Vec<(u64, ClosedLifetime)> = of_number
            .filter_map(|entry| {
                entry
                    .close
                    .map(|(order, closer, call)| (order, (entry.opener, closer, call)))
            })
            .collect();
        closed.sort_by_key(|one| std::cmp::Reverse(one.0));
        closed
            .into_iter()
            .map(|(_, one)| one)
            .take(super::slot::MOST_PAST)
            .collect()
    }

    fn places(&self, process: TraceKey) -> Vec<Place> {
        let stack_of = |entry: &Entry| entry.opener.and_then(|opener| opener.stack);
        let counted = || self.entries(process).filter(|entry| entry.was_open);
        let mut stacks: Vec<_> = counted().map(stack_of).collect();
        stacks.sort_unstable();
        stacks.dedup();
        let place = |stack| {
            let here = || counted().filter(|entry| stack_of(entry) == stack);
            let open = || here().filter(|entry| entry.close.is_none());
            let oldest = open().filter_map(|entry| Some(entry.opener?.at)).min();
            (stack, here().count() as u64, open().count() as u64, oldest)
        };
        stacks.into_iter().map(place).collect()
    }

    /// Panics if the ledger differs.
    pub(super) fn compare(&self, ledger: &Ledger, process: TraceKey, numbers: std::ops::Range<Fd>) {
        let open = ledger.live(process);
        let open: Vec<Open> = open
            .map(|(fd, life)| (fd, life.opener, life.cloexec, life.inherited))
            .collect();
        assert_eq!(open, self.open(process), "open in {process:?}");
        for fd in numbers {
            let closed = ledger.closes_of(process, fd);
            let closed: Vec<ClosedLifetime> = closed
                .map(|past| (past.life.opener, past.closer, past.call))
                .collect();
            assert_eq!(
                closed,
                self.closed(process, fd),
                "closed at {fd} in {process:?}"
            );
        }
        let generations: Vec<Generation> = ledger
            .live(process)
            .map(|(_, life)| life.generation)
            .collect();
        let distinct: std::collections::BTreeSet<_> = generations.iter().collect();
        assert_eq!(distinct.len(), generations.len(), "generations differ");
        if self.entries(process).next().is_none() {
            return;
        }
        let mut places: Vec<Place> = ledger
            .origins(process)
            .iter()
            .map(|tally| (tally.stack, tally.opened, tally.live, tally.oldest))
            .collect();
        places.sort_unstable();
        assert_eq!(places, self.places(process), "places of {process:?}");
    }
}

fn entry(fd: Fd, opener: Option<Actor>, cloexec: bool) -> Entry {
    Entry {
        fd,
        opener,
        cloexec,
        inherited: false,
        was_open: true,
        close: None,
        is_forgotten: false,
    }
}
