//! Converts records of the ring to core's events: pure, so that it can be tested without a program.

use std::collections::VecDeque;

use fdguard_core::event::{Errno, StackId, TraceEvent, What};
use fdguard_core::{FileId, TraceKey};
use fdguard_wire::{
    CLOSE_THREADS, CloseCall, EventKind, EventRecord, FdCall, LOCK_BEGINS, OpenCall, PreventedHarm,
};

use crate::call_class::CallClasses;
use crate::ring::DrainedEvents;

/// A thread that was inside a call when its number was closed reports its stack when it leaves the
/// call. The report is awaited for this many nanoseconds.
const PATIENCE: u64 = 5_000_000_000;
/// The most events that are held back for it.
const MOST_HELD: usize = 1 << 16;

/// The events of one process that are not delivered yet.
#[derive(Debug)]
pub(crate) struct Feed {
    process: TraceKey,
    held: VecDeque<TicketedRecord>,
    /// All tickets before this one were read, or will come late.
    read: u64,
    /// One past the last ticket that was delivered.
    next: u64,
    /// Closes that were delivered and may not have returned: up to which ticket, and which close.
    closing: Vec<(u64, EventRecord)>,
    classes: CallClasses,
    delivery: Delivery,
    threads: Threads,
}

/// A record and its place in the order of events.
#[derive(Clone, Copy, Debug)]
struct TicketedRecord {
    ticket: u64,
    record: EventRecord,
}

/// What is known of the threads of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    /// One so far.
    One,
    /// Several, and that was reported.
    Several,
    /// A forked child begins with one, but the C library's variable still has its parent's value.
    Forked,
}

/// How an event is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// In order.
    InOrder,
    /// In order, and protection prevented its harm.
    Prevented,
    /// After later ones.
    Late,
}

impl Feed {
    pub(crate) fn new(process: TraceKey) -> Self {
        Self {
            process,
            held: VecDeque::new(),
            read: 0,
            next: 0,
            closing: Vec::new(),
            classes: CallClasses::default(),
            delivery: Delivery::InOrder,
            threads: Threads::One,
        }
    }

    /// How the last event is delivered.
    pub(crate) fn delivery(&self) -> Delivery {
        self.delivery
    }

    pub(crate) fn process(&self) -> TraceKey {
        self.process
    }

    /// Whether this is the first batch of the process.
    pub(crate) fn is_first(&self, drained: &DrainedEvents) -> bool {
        self.read == 0 && drained.next > 0
    }

    /// Adds a batch that was read.
    pub(crate) fn push(&mut self, drained: DrainedEvents) {
        if drained.lost > 0 {
            // Lost events are reported as lost, and their tickets do not count as missing.
            self.next = drained.tickets.first().copied().unwrap_or(drained.next);
            self.closing.clear();
        }
        if drained.is_forked {
            self.threads = Threads::Forked;
        }
        self.read = drained.next;
        let tickets = drained.tickets.into_iter().zip(drained.events);
        self.held
            .extend(tickets.map(|(ticket, record)| TicketedRecord { ticket, record }));
    }

    /// The next event that can be reported; `number` maps its stacks. At the end nothing is held
    /// back.
    pub(crate) fn next(
        &mut self,
        now: u64,
        is_end: bool,
        number: &mut dyn FnMut(u32) -> StackId,
    ) -> Option<TraceEvent> {
        self.delivery = Delivery::InOrder;
        loop {
            let front = self.held.front().copied();
            let reached = front.map_or(self.read, |front| front.ticket);
            if let Some(event) = self.closed(reached) {
                return Some(event);
            }
            let TicketedRecord { ticket, mut record } = front?;
            if ticket > self.next {
                self.next = ticket;
                return Some(self.event(&record, None, What::Missing));
            }
            if self.is_second_thread(&record) {
                self.threads = Threads::Several;
                return Some(self.event(&record, None, What::Threaded));
            }
            if record.kind == EventKind::Inside && ticket >= self.next {
                match self.inside(&record, now, is_end) {
                    Inside::Unknown => return None,
                    Inside::Not => record.kind = EventKind::Unknown,
                    Inside::At(stack) => record.stack = stack,
                }
            }
            self.held.pop_front();
            let is_late = ticket < self.next;
            self.next = self.next.max(ticket + 1);
            let Some(what) = self.what(&record) else {
                continue;
            };
            let may_be = matches!(record.kind, EventKind::Close | EventKind::Use);
            self.delivery = if is_late {
                Delivery::Late
            } else if may_be && record.code & PreventedHarm::BIT != 0 {
                Delivery::Prevented
            } else {
                Delivery::InOrder
            };
            if record.kind == EventKind::Close && !is_late {
                self.closing.push((record.more[0], record));
            }
            let stack = (record.stack != 0).then(|| number(record.stack));
            return Some(self.event(&record, stack, what));
        }
    }

    fn event(&self, record: &EventRecord, stack: Option<StackId>, what: What) -> TraceEvent {
        TraceEvent {
            process: self.process,
            thread: record.tid,
            at: record.ns,
            stack,
            what,
        }
    }

    /// Whether this is the first sign of a second thread.
    fn is_second_thread(&self, record: &EventRecord) -> bool {
        let has_several = record.kind == EventKind::Close && record.more[1] & CLOSE_THREADS != 0;
        has_several && self.threads == Threads::One
    }

    /// A close that had returned before this ticket was taken.
    fn closed(&mut self, reached: u64) -> Option<TraceEvent> {
        let is_over = |(until, _): &(u64, EventRecord)| *until <= reached;
        let over = self.closing.iter().position(is_over)?;
        let (_, close) = self.closing.swap_remove(over);
        Some(self.event(&close, None, What::CloseReturned { fd: close.fd }))
    }

    /// Whether a thread was inside a call when its number was closed. One that left with success
    /// before the close returned may have been outside when it happened, unless protection deferred
    /// the close because of it.
    fn inside(&self, inside: &EventRecord, now: u64, is_end: bool) -> Inside {
        let is_late = now.saturating_sub(inside.ns) > PATIENCE;
        let is_over = is_end || is_late || self.held.len() > MOST_HELD;
        let out = self.out_of(inside);
        if out.is_none() && !is_over {
            return Inside::Unknown;
        }
        let close = self.close_of(inside);
        let came_out = out.filter(|out| out.record.errno == 0);
        let is_first = came_out
            .zip(close)
            .filter(|(_, close)| close.record.code & PreventedHarm::BIT == 0)
            .is_some_and(|(out, close)| out.ticket < close.record.more[0]);
        if is_first || is_done(inside, out.map(|out| out.record)) && !is_late {
            return Inside::Not;
        }
        Inside::At(out.map_or(0, |out| out.record.stack))
    }

    /// The record that the thread inside writes when it leaves the call.
    fn out_of(&self, inside: &EventRecord) -> Option<TicketedRecord> {
        let is_it = |event: &&TicketedRecord| {
            let event = event.record;
            let is_torn = event.kind == EventKind::Use && event.code & FdCall::TORN != 0;
            is_torn && event.tid == inside.tid && event.fd == inside.fd
        };
        self.held.iter().find(is_it).copied()
    }

    /// The close that found it inside: it has the same time.
    fn close_of(&self, inside: &EventRecord) -> Option<TicketedRecord> {
        let is_it = |event: &&TicketedRecord| {
            let event = event.record;
            event.kind == EventKind::Close && event.fd == inside.fd && event.ns == inside.ns
        };
        self.held.iter().find(is_it).copied()
    }

    fn what(&mut self, record: &EventRecord) -> Option<What> {
        let fd = record.fd;
        let errno = (record.errno != 0).then(|| Errno::from_linux(i32::from(record.errno)));
        Some(match record.kind {
            EventKind::Open => self.open(record),
            EventKind::Close => {
                if errno != Some(Errno::Ebadf) {
                    self.classes.close(fd);
                }
                let call = CloseCall::from_code(record.code);
                What::Close { fd, call, errno }
            }
            EventKind::CloseRange => {
                let last = u32::try_from(record.more[0]).unwrap_or(u32::MAX);
                self.classes.close_range(fd, last);
                What::CloseRange {
                    first: fd,
                    last,
                    at_exec: false,
                }
            }
            EventKind::Inside => What::Enter {
                fd,
                call: FdCall::from_code(record.code),
            },
            EventKind::Use => What::Use {
                fd,
                call: FdCall::from_code(record.code),
                bytes: bytes(record),
                errno,
            },
            EventKind::Lock if record.code == LOCK_BEGINS => What::Locking { fd },
            EventKind::Lock | EventKind::Unlock => What::Lock {
                fd,
                file: None,
                range: Some((record.more[0], record.more[1])),
                taken: record.kind == EventKind::Lock,
            },
            EventKind::File => What::File {
                fd,
                file: FileId {
                    mnt: record.more[0],
                    ino: record.more[1],
                },
            },
            EventKind::Refused => What::Refused {
                call: OpenCall::from_code(record.code),
                errno: errno?,
            },
            EventKind::Select => What::Select { nfds: fd },
            EventKind::Reassigned => What::Reassigned { fd },
            // Children are followed elsewhere.
            EventKind::Started | EventKind::Reaped | EventKind::Unknown => return None,
        })
    }

    fn open(&mut self, record: &EventRecord) -> What {
        What::Open {
            fd: record.fd,
            call: OpenCall::from_code(record.code),
            class: self.classes.open(record),
            file: None,
            cloexec: false,
        }
    }
}

/// Where a thread was when its number was closed.
enum Inside {
    /// Not known yet.
    Unknown,
    /// Perhaps not inside a call.
    Not,
    /// Inside a call, with this stack; 0 if it never reported one.
    At(u32),
}

/// Whether the call was complete except for its return: what it wrote is often the very message
/// that makes the other thread close.
fn is_done(inside: &EventRecord, out: Option<EventRecord>) -> bool {
    FdCall::from_code(inside.code).writes() && out.is_none_or(|out| out.errno == 0)
}

/// The first bytes that were written. Trailing zeros cannot be distinguished from missing bytes: a
/// TLS record has its length at the front.
fn bytes(record: &EventRecord) -> Vec<u8> {
    let mut bytes: Vec<u8> = record
        .more
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    // The header of a TLS record may end with zeros.
    const HEADER: usize = 5;
    bytes.truncate(if used == 0 { 0 } else { used.max(HEADER) });
    bytes
}

#[cfg(test)]
mod tests;
