//! What an event changes in a table, and the record of it in each process that has the table.

use std::collections::BTreeSet;

use fdguard_kernel::{KernelEvent, Occurrence};
use fdguard_wire::{CLOSE_FINALIZED, CLOSE_THREADS, CloseCall, EventKind, EventRecord, OpenCall};

use super::KernelRecords;
use crate::kernel::calls::{close_call, fd_call, is_by_comparison, open_call, open_detail};
use crate::kernel::fd_table::TableEntry;
use crate::kernel::process::{RecordedProcess, TableId, record};
use crate::table::Descriptor;

/// The error of a close that closed nothing, and of a call on a number that is not open.
const EBADF: u16 = 9;

impl KernelRecords {
    pub(super) fn change(&mut self, table: TableId, event: &KernelEvent) {
        let by = (event.at, event.tid);
        match event.what {
            Occurrence::Opened {
                fd,
                call,
                file,
                arguments,
            } => self.open(table, event, (fd, call, file), arguments),
            Occurrence::Closed { .. } => self.close(table, event),
            Occurrence::Started { child } => self.start_child(event, child),
            Occurrence::Reaped { child } => self.reap_child(event, child),
            Occurrence::ClosedRange { first, last } => {
                let Some(shared) = self.tables.get_mut(table) else {
                    return;
                };
                let closed = shared.table.close_range(first, last, event.at);
                self.each(table, event.at, |process| {
                    for (fd, entry) in &closed {
                        process.note_close(*fd, entry, event.at);
                    }
                    process.push(EventRecord {
                        more: [u64::from(last), 0],
                        ..record(EventKind::CloseRange, by, first)
                    });
                });
            }
            Occurrence::Refused { call, errno } => self.emit(
                table,
                EventRecord {
                    code: open_call(call) as u8,
                    errno,
                    stack: event.stack,
                    ..record(EventKind::Refused, by, 0)
                },
            ),
            Occurrence::BadUse { fd, call } => self.emit(
                table,
                EventRecord {
                    code: fd_call(call) as u8,
                    errno: EBADF,
                    stack: event.stack,
                    ..record(EventKind::Use, by, fd)
                },
            ),
            Occurrence::ClosedInUse { fd, inside, call } => self.emit(
                table,
                EventRecord {
                    code: fd_call(call) as u8,
                    ..record(EventKind::Inside, (event.at, inside), fd)
                },
            ),
            _ => {}
        }
    }

    fn open(
        &mut self,
        table: TableId,
        event: &KernelEvent,
        (fd, number, file): (u32, u32, u64),
        arguments: [u64; 3],
    ) {
        let (call, is_compared) = (open_call(number), is_by_comparison(number));
        let Some(shared) = self.tables.get_mut(table) else {
            return;
        };
        if is_compared && shared.table.is_stale(fd, event.at) {
            return;
        }
        let before = shared.table.get(fd).copied();
        let same = before.filter(|entry| file != 0 && entry.file == file);
        if same.is_some() && is_compared {
            return;
        }
        let opened = record(EventKind::Open, (event.at, event.tid), fd);
        let opened = EventRecord {
            stack: event.stack,
            ..opened
        };
        if let Some(known) = same.filter(|entry| entry.is_by_comparison) {
            let by = (event.stack, event.tid, call);
            shared.table.reassign(fd, by);
            let stack = known.opened.map_or(0, |opened| opened.stack);
            self.each(table, event.at, |process| {
                process.note_reassigned(stack, event.stack);
                process.push(EventRecord {
                    kind: EventKind::Reassigned,
                    ..opened
                });
            });
            return;
        }
        if let Some(entry) = before.filter(|entry| entry.opened.is_some()) {
            self.close_unseen(table, (fd, entry), event.at);
        }
        let descriptor = Descriptor {
            generation: 0,
            stack: event.stack,
            tid: event.tid,
            ns: event.at,
            call,
            forks: 0,
            used: 0,
        };
        let entry = TableEntry {
            opened: None,
            file,
            is_by_comparison: is_compared,
        };
        if let Some(shared) = self.tables.get_mut(table) {
            shared.table.open(fd, descriptor, entry);
        }
        self.each(table, event.at, |process| {
            process.note_open(fd, event.stack);
            process.push(EventRecord {
                code: call as u8,
                more: [open_detail(call, arguments), 0],
                ..opened
            });
        });
    }

    /// A number is in use again, or free, and its close was not reported.
    fn close_unseen(&mut self, table: TableId, (fd, entry): (u32, TableEntry), at: u64) {
        self.each(table, at, |process| {
            process.note_close(fd, &entry, at);
            process.note_unseen_close();
            process.push(EventRecord {
                code: CloseCall::Unknown as u8,
                ..record(EventKind::Close, (at, process.key.pid), fd)
            });
        });
    }

    fn close(&mut self, table: TableId, event: &KernelEvent) {
        let Occurrence::Closed {
            fd,
            call,
            errno,
            file,
            is_finalized,
        } = event.what
        else {
            return;
        };
        let Some(shared) = self.tables.get_mut(table) else {
            return;
        };
        let is_stale = is_by_comparison(call) && shared.table.is_stale(fd, event.at);
        if is_stale || (is_by_comparison(call) && shared.table.get(fd).is_none()) {
            return;
        }
        // Another thread may have opened the number since a close of it failed.
        let closed = match errno {
            EBADF => None,
            _ => shared.table.close(fd, event.at),
        };
        let call = close_call(call);
        if call == CloseCall::Dup2 && closed.is_none() && file == 0 {
            return;
        }
        self.each(table, event.at, |process| {
            if let Some(entry) = &closed {
                process.note_close(fd, entry, event.at);
            }
            let finalized = if is_finalized { CLOSE_FINALIZED } else { 0 };
            let threads = if process.has_threads {
                CLOSE_THREADS
            } else {
                0
            };
            process.push(EventRecord {
                code: call as u8,
                errno,
                stack: event.stack,
                more: [0, threads | finalized],
                ..record(EventKind::Close, (event.at, event.tid), fd)
            });
        });
    }

    fn emit(&mut self, table: TableId, record: EventRecord) {
        self.each(table, record.ns, |process| process.push(record));
    }

    /// Every process that has this table.
    fn each(&mut self, table: TableId, at: u64, mut what: impl FnMut(&mut RecordedProcess)) {
        let Some(shared) = self.tables.get_mut(table) else {
            return;
        };
        shared.changed = shared.changed.max(at);
        for pid in &shared.pids {
            let key = self.current.get(pid);
            if let Some(process) = key.and_then(|key| self.processes.get_mut(key)) {
                what(process);
            }
        }
    }

    /// Corrects the table of a process by what is open in it at this time, when all events were
    /// applied. Returns how much was wrong.
    pub(in crate::kernel) fn reconcile(
        &mut self,
        pid: u32,
        open: &BTreeSet<u32>,
        at: u64,
    ) -> usize {
        let Some(table) = self.table_id(pid) else {
            return 0;
        };
        let Some(shared) = self.tables.get(table) else {
            return 0;
        };
        if self.is_launching(pid) {
            return 0;
        }
        let known: BTreeSet<u32> = shared.table.fds().collect();
        if let Some(shared) = self.tables.get_mut(table) {
            shared.checked = at;
        }
        let gone: Vec<u32> = known.difference(open).copied().collect();
        let new: Vec<u32> = open.difference(&known).copied().collect();
        for fd in &gone {
            let shared = self.tables.get_mut(table);
            if let Some(entry) = shared.and_then(|shared| shared.table.close(*fd, at)) {
                self.close_unseen(table, (*fd, entry), at);
            }
        }
        for fd in &new {
            self.open_unseen(table, *fd, (at, pid));
        }
        gone.len() + new.len()
    }

    /// A number is in use whose open was not reported.
    fn open_unseen(&mut self, table: TableId, fd: u32, (at, pid): (u64, u32)) {
        let descriptor = Descriptor {
            generation: 0,
            stack: 0,
            tid: pid,
            ns: at,
            call: OpenCall::Unknown,
            forks: 0,
            used: 0,
        };
        let entry = TableEntry {
            opened: None,
            file: 0,
            is_by_comparison: true,
        };
        if let Some(shared) = self.tables.get_mut(table) {
            shared.table.open(fd, descriptor, entry);
        }
        self.each(table, at, |process| {
            process.unseen_opens += 1;
            process.note_open(fd, 0);
            process.push(record(EventKind::Open, (at, process.key.pid), fd));
        });
    }
}
