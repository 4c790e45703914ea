//! One number of the descriptor table: which stack opened it, when, and how often it was reused.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::OpenCall;
use crate::image::Words;
use crate::mapping::low;

/// A slot. `state` is changed in one step; the rest belongs to it if `check` matches.
#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    /// Generation (odd: open) in the upper half, stack in the lower.
    state: AtomicU64,
    /// When it was opened, by the monotonic clock.
    ns: AtomicU64,
    /// Thread in the lower half, then the call, then how many forks ago.
    by: AtomicU64,
    /// A mix of the three words before.
    check: AtomicU64,
    /// The time of the latest event before its last use; 0 if it was not used.
    used: AtomicU64,
    /// The stack that used it last, if that is recorded; 0 if unknown.
    user: AtomicU64,
}

/// What is known of a descriptor when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRecord {
    /// The stack that opened it; 0 if unknown.
    pub stack: u32,
    /// The thread.
    pub tid: u32,
    /// The time by the monotonic clock.
    pub ns: u64,
    /// The call that opened it.
    pub call: OpenCall,
    /// Forks since: the stack is in an ancestor's mapping.
    pub forks: u8,
}

/// A closed descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseRecord {
    /// Generation: how many times this descriptor number had been used.
    pub generation: u32,
    /// Its opening stack.
    pub stack: u32,
    /// Forks since it was opened.
    pub forks: u8,
    /// When it was opened, by the monotonic clock.
    pub opened_at: u64,
}

/// A slot as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRecord {
    /// Generation: how many times this descriptor number has been used.
    pub generation: u32,
    /// What is known of it; `None` if the record is incomplete.
    pub open: Option<OpenRecord>,
    /// The time of the latest event before its last use; 0 if it was not used.
    pub used: u64,
}

fn turn(state: u64) -> u32 {
    low(state >> 32)
}

fn is_open(state: u64) -> bool {
    turn(state) % 2 == 1
}

fn packed(turn: u32, stack: u32) -> u64 {
    u64::from(turn) << 32 | u64::from(stack)
}

fn byte(word: u64) -> u8 {
    (word & 0xff) as u8
}

fn mixed(state: u64, ns: u64, by: u64) -> u64 {
    state ^ ns.rotate_left(17) ^ by.rotate_left(31) ^ 0x9e37_79b9_7f4a_7c15
}

impl Slot {
    /// A number that was never used.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            ns: AtomicU64::new(0),
            by: AtomicU64::new(0),
            check: AtomicU64::new(0),
            used: AtomicU64::new(0),
            user: AtomicU64::new(0),
        }
    }

    /// Records an open. Returns the previous descriptor if its close was not seen.
    pub fn open(&self, open: &OpenRecord) -> Option<CloseRecord> {
        let before = self.state.load(Ordering::Relaxed);
        let (forks, opened_at) = (self.forks(), self.ns.load(Ordering::Relaxed));
        let next = turn(before).wrapping_add(if is_open(before) { 2 } else { 1 });
        let state = packed(next, open.stack);
        let by =
            u64::from(open.tid) | u64::from(open.call as u8) << 32 | u64::from(open.forks) << 40;
        self.used.store(0, Ordering::Relaxed);
        self.user.store(0, Ordering::Relaxed);
        self.ns.store(open.ns, Ordering::Relaxed);
        self.by.store(by, Ordering::Relaxed);
        self.check
            .store(mixed(state, open.ns, by), Ordering::Relaxed);
        let before = self.state.swap(state, Ordering::AcqRel);
        is_open(before).then(|| CloseRecord {
            generation: turn(before).div_ceil(2),
            stack: low(before),
            forks,
            opened_at,
        })
    }

    /// Records a close. Returns nothing if it was not open.
    pub fn close(&self) -> Option<CloseRecord> {
        let mut state = self.state.load(Ordering::Acquire);
        while is_open(state) {
            let (forks, opened_at) = (self.forks(), self.ns.load(Ordering::Relaxed));
            let next = packed(turn(state).wrapping_add(1), low(state));
            match self
                .state
                .compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    return Some(CloseRecord {
                        generation: turn(state).div_ceil(2),
                        stack: low(state),
                        forks,
                        opened_at,
                    });
                }
                Err(now) => state = now,
            }
        }
        None
    }

    /// Replaces the stack that opened it, while it is the same descriptor. Returns the previous
    /// one.
    pub fn restack(&self, stack: u32) -> Option<CloseRecord> {
        let word = |atomic: &AtomicU64| atomic.load(Ordering::Acquire);
        let (state, ns, by) = (word(&self.state), word(&self.ns), word(&self.by));
        let check = word(&self.check);
        if !is_open(state) || check != mixed(state, ns, by) {
            return None;
        }
        let next = packed(turn(state), stack);
        self.state
            .compare_exchange(state, next, Ordering::AcqRel, Ordering::Acquire)
            .ok()?;
        // Unless a new descriptor at this number has written its own.
        let new = mixed(next, ns, by);
        let _ = self
            .check
            .compare_exchange(check, new, Ordering::AcqRel, Ordering::Relaxed);
        Some(CloseRecord {
            generation: turn(state).div_ceil(2),
            stack: low(state),
            forks: byte(by >> 40),
            opened_at: ns,
        })
    }

    /// Its current record.
    #[must_use]
    pub fn record(&self) -> Option<SlotRecord> {
        let word = |atomic: &AtomicU64| atomic.load(Ordering::Acquire);
        let (state, ns, by) = (word(&self.state), word(&self.ns), word(&self.by));
        record([state, ns, by, word(&self.check), word(&self.used)])
    }

    /// It was used; the latest event was at this time. Usually a load and no store.
    pub(crate) fn note_use(&self, latest: u64) {
        if self.used.load(Ordering::Relaxed) != latest {
            self.used.store(latest, Ordering::Relaxed);
        }
    }

    /// It was used by this stack.
    pub(crate) fn note_user(&self, stack: u32) {
        self.user.store(u64::from(stack), Ordering::Relaxed);
    }

    /// Its generation: odd while it is open.
    #[must_use]
    pub fn turn(&self) -> u32 {
        turn(self.state.load(Ordering::Relaxed))
    }

    fn forks(&self) -> u8 {
        byte(self.by.load(Ordering::Relaxed) >> 40)
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) const SIZE: usize = size_of::<Slot>();

/// A slot from its bytes; `None` if nothing is open.
pub(crate) fn read(words: Words<'_>) -> Option<SlotRecord> {
    record([
        words.at(0)?,
        words.at(1)?,
        words.at(2)?,
        words.at(3)?,
        words.at(4)?,
    ])
}

/// The stack that used a number last, from its bytes; `None` if unknown.
pub(crate) fn user(words: Words<'_>) -> Option<u32> {
    words.at(5).map(low).filter(|stack| *stack != 0)
}

/// Whether a number was open once and is closed now, from its bytes.
pub(crate) fn is_closed(words: Words<'_>) -> bool {
    words
        .at(0)
        .is_some_and(|state| turn(state) > 0 && !is_open(state))
}

fn record([state, ns, by, check, used]: [u64; 5]) -> Option<SlotRecord> {
    if !is_open(state) {
        return None;
    }
    let open = OpenRecord {
        stack: low(state),
        tid: low(by),
        ns,
        call: OpenCall::from_code(byte(by >> 32)),
        forks: byte(by >> 40),
    };
    Some(SlotRecord {
        generation: turn(state).div_ceil(2),
        open: (check == mixed(state, ns, by)).then_some(open),
        used,
    })
}

#[cfg(test)]
mod tests {
    use super::{OpenRecord, Slot};
    use crate::OpenCall;

    fn open(stack: u32) -> OpenRecord {
        OpenRecord {
            stack,
            tid: 77,
            ns: 123_456,
            call: OpenCall::Pipe,
            forks: 0,
        }
    }

    #[test]
    fn a_closed_and_reopened_number_is_a_new_generation() {
        let slot = Slot::new();
        assert_eq!(slot.close(), None);
        assert_eq!(slot.open(&open(5)), None);
        let record = slot.record().unwrap();
        assert_eq!((record.generation, record.open), (1, Some(open(5))));
        let closed = slot.close().unwrap();
        assert_eq!((closed.generation, closed.stack), (1, 5));
        assert_eq!(closed.opened_at, 123_456);
        assert_eq!(slot.record(), None);
        slot.open(&open(6));
        assert_eq!(slot.record().unwrap().generation, 2);
    }

    #[test]
    fn an_unseen_close_is_reported_by_the_next_open() {
        let slot = Slot::new();
        slot.open(&open(5));
        let closed = slot.open(&open(6)).unwrap();
        assert_eq!((closed.generation, closed.stack), (1, 5));
        assert_eq!(slot.record().unwrap().generation, 2);
    }

    #[test]
    fn another_stack_leaves_the_rest_as_it_is() {
        let slot = Slot::new();
        assert_eq!(slot.restack(9), None);
        slot.open(&open(5));
        assert_eq!(slot.restack(9).unwrap().stack, 5);
        let record = slot.record().unwrap();
        assert_eq!((record.generation, record.open), (1, Some(open(9))));
        assert_eq!(slot.close().unwrap().stack, 9);
        assert_eq!(slot.restack(5), None);
        assert_eq!(slot.record(), None);
    }

    #[test]
    fn a_record_that_is_half_of_another_is_not_believed() {
        let slot = Slot::new();
        slot.open(&open(5));
        slot.ns.store(1, core::sync::atomic::Ordering::Relaxed);
        let record = slot.record().unwrap();
        assert_eq!((record.generation, record.open), (1, None));
    }

    /// Under Miri every allowed order of stores and loads may occur (`testkit/miri`).
    #[test]
    fn a_reader_beside_a_writer_sees_whole_records_only() {
        let slot = Slot::new();
        let record = |stack: u32| OpenRecord {
            stack,
            tid: stack + 1,
            ns: u64::from(stack) * 1_000_003,
            call: OpenCall::Pipe,
            forks: 0,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for stack in 1..20 {
                    let _missed = slot.open(&record(stack));
                    if stack % 3 == 0 {
                        let _closed = slot.restack(stack + 100);
                    }
                    if stack % 2 == 0 {
                        let _closed = slot.close();
                    }
                }
            });
            for _ in 0..40 {
                if let Some(open) = slot.record().and_then(|seen| seen.open) {
                    let stack = open.tid - 1;
                    let plain = record(stack);
                    let again = OpenRecord {
                        stack: stack + 100,
                        ..plain
                    };
                    assert!(open == plain || open == again, "{open:?}");
                }
                std::thread::yield_now();
            }
        });
    }
}
