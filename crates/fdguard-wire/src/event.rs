//! The ring of events, in order: hazards are detected in it.
//!
//! A writer takes a ticket first and fills its place later. A close takes its ticket before the
//! call and an open after it, so tickets give the order even where a number is reused at once. A
//! ticket that is never filled (its thread was killed) is a hole. The reader must keep up:
//! overwritten events are lost, and the reader knows how many.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::image::Words;
use crate::mapping::low;

/// One place of the ring.
#[derive(Debug)]
#[repr(C)]
pub struct RingEvent {
    ns: AtomicU64,
    /// Thread in the lower half, then kind, code, and error.
    by: AtomicU64,
    /// Number in the lower half, stack in the upper.
    which: AtomicU64,
    more: [AtomicU64; 2],
    /// The five before and the ticket, mixed.
    check: AtomicU64,
}

/// An event as written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// What happened.
    pub kind: EventKind,
    /// The call: an [`OpenCall`](crate::OpenCall) of an open or a refusal, an
    /// [`FdCall`](crate::FdCall) of a use, a [`CloseCall`](crate::CloseCall) of a close.
    pub code: u8,
    /// The error that it gave; 0 for none.
    pub errno: u16,
    /// The thread.
    pub tid: u32,
    /// When, by the monotonic clock.
    pub ns: u64,
    /// The number.
    pub fd: u32,
    /// The stack; 0 where it was not taken.
    pub stack: u32,
    /// What else there is to say, by kind.
    pub more: [u64; 2],
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// Of a later version.
    Unknown = 0,
    /// A descriptor was opened. More: for a socket its domain and type, for what comes from another
    /// number that number and one.
    Open,
    /// A descriptor was closed, or a close failed. More: how many tickets were given out when the
    /// call was over, so that it happened between its own ticket and that one; 0 when that is not
    /// known. Then 1 if the process had a second thread by then.
    Close,
    /// All numbers from `fd` to the first of `more`.
    CloseRange,
    /// A thread was found inside a call when another one closes its number.
    Inside,
    /// A call on a number is over. More: the first bytes that were written; with `code`
    /// [`FdCall::TORN`](crate::FdCall::TORN) set, its number was closed meanwhile.
    Use,
    /// A POSIX lock was taken. More: first byte, and the one after the last. With `code`
    /// [`LOCK_BEGINS`], a call begins that takes or gives back a lock.
    Lock,
    /// A POSIX lock was given back. More: as above.
    Unlock,
    /// Which file a number is. More: device and inode.
    File,
    /// A call that gives out numbers got none.
    Refused,
    /// `select` up to this number and one.
    Select,
    /// Other code is known to have requested this descriptor: the stack of this event replaces the
    /// stack of its open.
    Reassigned,
    /// A child process was started. More: its number; 0 where the call does not tell it, with the
    /// time at which the call began, for a call that started and waited for it.
    Started,
    /// A child that ended was waited for. More: its number.
    Reaped,
}

const KINDS: &[EventKind] = &[
    EventKind::Unknown,
    EventKind::Open,
    EventKind::Close,
    EventKind::CloseRange,
    EventKind::Inside,
    EventKind::Use,
    EventKind::Lock,
    EventKind::Unlock,
    EventKind::File,
    EventKind::Refused,
    EventKind::Select,
    EventKind::Reassigned,
    EventKind::Started,
    EventKind::Reaped,
];

/// The code of a lock that is being taken or given back.
pub const LOCK_BEGINS: u8 = 1;

/// Harm that protection kept from happening; the bit [`PreventedHarm::BIT`] of the code of an end
/// or a use says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PreventedHarm {
    /// A use of a number that was closed.
    Use = 0,
    /// A second close.
    DoubleClose,
    /// A close of a socket that another thread was inside of: put off.
    Stranger,
}

impl PreventedHarm {
    /// How many kinds there are.
    pub const KINDS: usize = 3;
    /// The bit of a code.
    pub const BIT: u8 = 0x40;
}

fn mixed(words: [u64; 5], ticket: u64) -> u64 {
    let [a, b, c, d, e] = words;
    let words = a ^ b.rotate_left(13) ^ c.rotate_left(29) ^ d.rotate_left(43) ^ e.rotate_left(53);
    words ^ ticket.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl RingEvent {
    /// An empty place.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ns: AtomicU64::new(0),
            by: AtomicU64::new(0),
            which: AtomicU64::new(0),
            more: [const { AtomicU64::new(0) }; 2],
            check: AtomicU64::new(0),
        }
    }

    pub(crate) fn write(&self, ticket: u64, record: &EventRecord) {
        let by = u64::from(record.tid)
            | u64::from(record.kind as u8) << 32
            | u64::from(record.code) << 40
            | u64::from(record.errno) << 48;
        let which = u64::from(record.fd) | u64::from(record.stack) << 32;
        let [first, second] = record.more;
        self.ns.store(record.ns, Ordering::Relaxed);
        self.by.store(by, Ordering::Relaxed);
        self.which.store(which, Ordering::Relaxed);
        self.more[0].store(first, Ordering::Relaxed);
        self.more[1].store(second, Ordering::Relaxed);
        let check = mixed([record.ns, by, which, first, second], ticket);
        self.check.store(check, Ordering::Release);
    }
}

impl Default for RingEvent {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) const SIZE: usize = size_of::<RingEvent>();

/// The event of a ticket from its bytes; `None` when the place holds another one, none, or one that
/// is being written.
pub(crate) fn read(words: Words<'_>, ticket: u64) -> Option<EventRecord> {
    let all = [
        words.at(0)?,
        words.at(1)?,
        words.at(2)?,
        words.at(3)?,
        words.at(4)?,
    ];
    if words.at(5)? != mixed(all, ticket) {
        return None;
    }
    let [ns, by, which, first, second] = all;
    let kind = KINDS.get(usize::from((by >> 32 & 0xff) as u8));
    Some(EventRecord {
        kind: kind.copied().unwrap_or(EventKind::Unknown),
        code: (by >> 40 & 0xff) as u8,
        errno: (by >> 48) as u16,
        tid: low(by),
        ns,
        fd: low(which),
        stack: low(which >> 32),
        more: [first, second],
    })
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;
    use std::vec::Vec;

    use super::{EventKind, EventRecord, KINDS, RingEvent};
    use crate::FdCall;
    use crate::image::Words;

    fn bytes(event: &RingEvent) -> Vec<u8> {
        let [a, b] = &event.more;
        let words = [&event.ns, &event.by, &event.which, a, b, &event.check];
        let words = words.iter().map(|word| word.load(Ordering::Relaxed));
        words.flat_map(u64::to_ne_bytes).collect()
    }

    fn record() -> EventRecord {
        EventRecord {
            kind: EventKind::Use,
            code: FdCall::Write as u8 | FdCall::TORN,
            errno: 9,
            tid: 77,
            ns: 123_456_789,
            fd: 11,
            stack: 5,
            more: [1, 2],
        }
    }

    #[test]
    fn an_event_comes_back_by_its_own_ticket_alone() {
        let event = RingEvent::new();
        assert_eq!(super::read(Words::of(&bytes(&event)), 0), None);
        event.write(7, &record());
        let bytes = bytes(&event);
        assert_eq!(super::read(Words::of(&bytes), 7), Some(record()));
        assert_eq!(super::read(Words::of(&bytes), 6), None);
        assert_eq!(FdCall::from_code(record().code), FdCall::Write);
    }

    #[test]
    fn an_event_of_which_a_part_is_another_ones_is_nobodys() {
        let event = RingEvent::new();
        event.write(7, &record());
        event.ns.store(1, Ordering::Relaxed);
        assert_eq!(super::read(Words::of(&bytes(&event)), 7), None);
    }

    #[test]
    fn codes_stand_for_what_is_at_their_place() {
        assert!(
            KINDS
                .iter()
                .enumerate()
                .all(|(at, kind)| *kind as usize == at)
        );
    }
}
