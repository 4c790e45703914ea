//! Child processes: where they are started, and whether the program waited for them.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use fdguard_wire::{EventKind, EventRecord};

use crate::record::{tell, with};
use crate::{real, stack, thread};

/// The stack that requests the next child, as reported by an agent: thread in the upper half, stack
/// in the lower; 0 if there is none.
static EXPECTED: AtomicU64 = AtomicU64::new(0);

/// The calling thread is about to start a child; `stack` requested it.
pub(crate) fn expect(stack: u32) {
    let word = u64::from(thread::tid()) << 32 | u64::from(stack);
    EXPECTED.store(word, Ordering::Relaxed);
}

/// The stack that requested the child that the calling thread started, if an agent reported it.
fn take_expected() -> Option<u32> {
    let word = EXPECTED.load(Ordering::Relaxed);
    if word == 0 || word >> 32 != u64::from(thread::tid()) {
        return None;
    }
    let taken = EXPECTED.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
    taken.is_ok().then_some((word & 0xffff_ffff) as u32)
}

/// In a forked child no request is pending.
pub(crate) fn forget() {
    EXPECTED.store(0, Ordering::Relaxed);
}

/// A call that starts a child returned `pid`. Returns it again, so that a hook can end with this
/// call. Only the parent gets a number greater than 0.
pub(crate) fn started(pid: c_int) -> c_int {
    if let Ok(number) = u64::try_from(pid)
        && number > 0
    {
        start([number, 0]);
    }
    pid
}

/// A call that began at `since` started a child, waited for it and did not return its number.
pub(crate) fn started_within(since: u64) {
    start([0, since]);
}

fn start(more: [u64; 2]) {
    with(|mapping| {
        let mut event = event(EventKind::Started, more);
        event.stack = take_expected().unwrap_or_else(|| stack::here(mapping));
        tell(mapping, &event);
    });
}

/// A child that ended was waited for. The stack is irrelevant, because nothing is blamed on it.
pub(crate) fn reaped(pid: c_int) {
    if let Ok(number) = u64::try_from(pid)
        && number > 0
    {
        with(|mapping| tell(mapping, &event(EventKind::Reaped, [number, 0])));
    }
}

fn event(kind: EventKind, more: [u64; 2]) -> EventRecord {
    EventRecord {
        kind,
        code: 0,
        errno: 0,
        tid: thread::tid(),
        ns: real::now(),
        fd: 0,
        stack: 0,
        more,
    }
}

#[cfg(test)]
mod tests {
    use super::{expect, forget, take_expected};

    #[test]
    fn who_asked_is_for_one_child_of_the_thread_that_was_told() {
        expect(9);
        assert_eq!(std::thread::spawn(take_expected).join().unwrap(), None);
        assert_eq!((take_expected(), take_expected()), (Some(9), None));
        expect(9);
        forget();
        assert_eq!(take_expected(), None);
    }
}
