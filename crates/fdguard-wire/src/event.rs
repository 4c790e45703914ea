//! The ring of events, in order: hazards are detected from it.
//!
//! A writer takes a ticket first and fills its entry later. A close takes its ticket before the
//! call and an open after it, so tickets give the order even where a number is reused at once. A
//! ticket that is never filled (its thread was killed) is a hole. The reader must keep up:
//! overwritten events are lost, and the reader knows how many.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::image::Words;
use crate::mapping::low;

/// One entry of the ring.
#[derive(Debug)]
#[repr(C)]
pub struct RingEvent {
    ns: AtomicU64,
    /// Thread in the lower half, then kind, code, and error.
    by: AtomicU64,
    /// Number in the lower half, stack in the upper.
    which: AtomicU64,
    more: [AtomicU64; 2],
    /// A mix of the five words before and the ticket.
    check: AtomicU64,
}

/// An event as written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// What happened.
    pub kind: EventKind,
    /// The call: an [`OpenCall`](crate::OpenCall) for an open or a refusal, an
    /// [`FdCall`](crate::FdCall) for a use, a [`CloseCall`](crate::CloseCall) for a close.
    pub code: u8,
    /// The error that it returned; 0 for none.
    pub errno: u16,
    /// The thread.
    pub tid: u32,
    /// The time by the monotonic clock.
    pub ns: u64,
    /// The number.
    pub fd: u32,
    /// The stack; 0 if it was not recorded.
    pub stack: u32,
    /// Further data, depending on the kind.
    pub more: [u64; 2],
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// A kind of a later version.
    Unknown = 0,
    /// A descriptor was opened. More: for a socket its domain and type, for a descriptor derived
    /// from another number that number plus one.
    Open,
    /// A descriptor was closed, or a close failed. More: how many tickets had been taken when the
    /// call returned, so the close happened between its own ticket and that one; 0 if unknown. Then
    /// [`CLOSE_THREADS`] if the process had a second thread by then, and [`CLOSE_FINALIZED`].
    Close,
    /// All numbers from `fd` to the first word of `more` were closed.
    CloseRange,
    /// A thread was found inside a call when another one closed its number.
    Inside,
    /// A call on a number returned. More: the first bytes that were written; if `code` has
    /// [`FdCall::TORN`](crate::FdCall::TORN) set, its number was closed meanwhile.
    Use,
    /// A POSIX lock was taken. More: first byte, and one past the last. With `code`
    /// [`LOCK_BEGINS`], a call begins that takes or releases a lock.
    Lock,
    /// A POSIX lock was released. More: as above.
    Unlock,
    /// The file of a number. More: device and inode.
    File,
    /// A call that opens a descriptor failed for lack of a number.
    Refused,
    /// `select` with this `nfds`, beyond the size of its sets.
    Select,
    /// Other code is known to have requested this descriptor: the stack of this event replaces the
    /// stack of its open.
    Reassigned,
    /// A child process was started. More: its pid; 0 if the call does not return it, with the time
    /// at which the call began, for a call that started and waited for it.
    Started,
    /// A child that ended was waited for. More: its pid.
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

/// In the second word of a close: the process had a second thread by then.
pub const CLOSE_THREADS: u64 = 1;
/// In the second word of a close: an interpreter that is cleaning up at its exit closed it, not
/// code of the program.
pub const CLOSE_FINALIZED: u64 = 2;

/// The code of a lock that is being taken or released.
pub const LOCK_BEGINS: u8 = 1;

/// Harm that protection prevented; marked by the bit [`PreventedHarm::BIT`] in the code of a close
/// or a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PreventedHarm {
    /// A use of a closed number.
    Use = 0,
    /// A second close.
    DoubleClose,
    /// A close of a socket while another thread was inside a call on it: deferred.
    Stranger,
}

impl PreventedHarm {
    /// How many kinds there are.
    pub const KINDS: usize = 3;
    /// The bit in a code.
    pub const BIT: u8 = 0x40;
}

fn mixed(words: [u64; 5], ticket: u64) -> u64 {
    let [a, b, c, d, e] = words;
    let words = a ^ b.rotate_left(13) ^ c.rotate_left(29) ^ d.rotate_left(43) ^ e.rotate_left(53);
    words ^ ticket.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl RingEvent {
    /// An empty entry.
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

/// The event of a ticket from its bytes; `None` if the entry holds another event, none, or one that
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

    /// Under Miri every allowed order of stores and loads may occur (`testkit/miri`).
    #[test]
    fn a_reader_beside_a_writer_gets_the_event_of_its_ticket_or_none() {
        let event = RingEvent::new();
        let of = |ticket: u64| EventRecord {
            ns: ticket * 7,
            fd: 3,
            more: [ticket, ticket << 32],
            ..record()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for ticket in 0..20 {
                    event.write(ticket, &of(ticket));
                }
            });
            for round in 0..60 {
                let (ticket, bytes) = (round % 20, bytes(&event));
                if let Some(seen) = super::read(Words::of(&bytes), ticket) {
                    assert_eq!(seen, of(ticket));
                }
                std::thread::yield_now();
            }
        });
    }
}
