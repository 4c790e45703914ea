//! Closes that a runtime's agent announced. The stack of the code that requested the close replaces
//! the stack of the close itself, which the runtime makes later or on another thread.

use core::sync::atomic::{AtomicU64, Ordering};

/// Announcements that wait for their close. Each number has one slot; of two announcements in a
/// slot the later one wins.
const PLACES: usize = 64;

/// Number plus one in the upper half, stack in the lower; 0 if there is none.
static EXPECTED: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// Announces a close of this number.
pub(crate) fn expect(fd: u32, stack: u32) {
    if let Some(place) = EXPECTED.get(fd as usize % PLACES) {
        let word = u64::from(fd).wrapping_add(1) << 32 | u64::from(stack);
        place.store(word, Ordering::Release);
    }
}

/// The close happened: the stack that requested it, if an agent announced it.
#[inline]
pub(crate) fn next_fd(fd: u32) -> Option<u32> {
    let place = EXPECTED.get(fd as usize % PLACES)?;
    let word = place.load(Ordering::Acquire);
    if word >> 32 != u64::from(fd).wrapping_add(1) {
        return None;
    }
    let taken = place.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
    taken.is_ok().then_some((word & 0xffff_ffff) as u32)
}

/// In a forked child no close is announced.
pub(crate) fn forget() {
    for place in &EXPECTED {
        place.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{PLACES, expect, forget, next_fd};

    #[test]
    fn an_announcement_is_for_one_close_of_its_number() {
        let other = 5 + u32::try_from(PLACES).unwrap();
        expect(5, 9);
        assert_eq!(next_fd(other), None);
        assert_eq!(next_fd(5), Some(9));
        assert_eq!(next_fd(5), None);
        expect(5, 9);
        expect(other, 8);
        assert_eq!((next_fd(5), next_fd(other)), (None, Some(8)));
        expect(5, 9);
        forget();
        assert_eq!(next_fd(5), None);
    }
}
