//! The state of each number under protection: one word each, changed atomically.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

/// Numbers from here on are closed as without protection.
pub(super) const NUMBERS: usize = 1 << 16;
/// The standard streams are not protected: programs close and reopen them for their numbers.
const FIRST: c_int = 3;
const PHASE: u32 = 7;
/// The step to the next descriptor at the same number.
const NEXT: u32 = PHASE + 1;

/// The state of a number under protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Left to the kernel: open, or free.
    Free,
    /// A thread is closing it.
    Closing,
    /// Closed; a placeholder has the number.
    Buried,
    /// Closed by another thread; its owner is still inside a call.
    PutOff,
    /// The placeholder is being removed.
    Released,
    /// Lent to a call that is about to give it to something else.
    Lent,
}

const PHASES: [Phase; 6] = [
    Phase::Free,
    Phase::Closing,
    Phase::Buried,
    Phase::PutOff,
    Phase::Released,
    Phase::Lent,
];

/// Generation: how many descriptors have had this number, in the upper bits of the word.
pub(super) type Age = u32;

static WORDS: [AtomicU32; NUMBERS] = [const { AtomicU32::new(0) }; NUMBERS];
/// One past the highest number that was ever protected.
static USED: AtomicU32 = AtomicU32::new(0);

fn word(fd: c_int) -> Option<&'static AtomicU32> {
    if fd < FIRST {
        return None;
    }
    WORDS.get(usize::try_from(fd).ok()?)
}

fn phase_of(word: u32) -> Phase {
    let known = PHASES.get((word & PHASE) as usize);
    known.copied().unwrap_or(Phase::Free)
}

fn packed(age: Age, phase: Phase) -> u32 {
    age & !PHASE | phase as u32
}

/// Whether a number can be protected.
pub(super) fn is_ours(fd: c_int) -> bool {
    word(fd).is_some()
}

/// The state of a number, and its generation.
pub(super) fn state(fd: c_int) -> (Phase, Age) {
    let word = word(fd).map_or(0, |word| word.load(Ordering::SeqCst));
    (phase_of(word), word & !PHASE)
}

/// The state alone, by a relaxed load.
#[inline]
pub(super) fn phase(fd: c_int) -> Phase {
    word(fd).map_or(Phase::Free, |word| phase_of(word.load(Ordering::Relaxed)))
}

/// Begins to close a number; `None` if it is already closed, or being closed.
pub(super) fn claim(fd: c_int) -> Option<Age> {
    let word = word(fd)?;
    let known = word.load(Ordering::Relaxed);
    let age = (known & !PHASE).wrapping_add(NEXT);
    if phase_of(known) != Phase::Free {
        return None;
    }
    word.compare_exchange(
        known,
        packed(age, Phase::Closing),
        Ordering::SeqCst,
        Ordering::Relaxed,
    )
    .ok()?;
    let behind = fd.unsigned_abs().saturating_add(1);
    if USED.load(Ordering::Relaxed) < behind {
        USED.fetch_max(behind, Ordering::Relaxed);
    }
    Some(age)
}

/// Moves from one phase to another, if no other thread was faster.
pub(super) fn step(fd: c_int, age: Age, from: Phase, to: Phase) -> bool {
    word(fd).is_some_and(|word| {
        word.compare_exchange(
            packed(age, from),
            packed(age, to),
            Ordering::SeqCst,
            Ordering::Relaxed,
        )
        .is_ok()
    })
}

/// The kernel returned this number: the previous state is obsolete.
#[inline]
pub(super) fn forget(fd: c_int) {
    if let Some(word) = word(fd) {
        let known = word.load(Ordering::Relaxed);
        if phase_of(known) != Phase::Free {
            word.store(packed(known, Phase::Free), Ordering::SeqCst);
        }
    }
}

/// Before protection begins: what an earlier one left does not count.
pub(super) fn reset() {
    for fd in 0..used() {
        forget(fd);
    }
}

/// One past the highest number that was ever protected.
pub(super) fn used() -> c_int {
    c_int::try_from(USED.load(Ordering::Relaxed)).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Phase, claim, forget, is_ours, phase, state, step};

    #[test]
    fn one_of_two_closers_wins_and_a_later_descriptor_is_another() {
        let age = claim(501).unwrap();
        assert_eq!(claim(501), None);
        assert!(step(501, age, Phase::Closing, Phase::Buried));
        assert!(!step(501, age, Phase::Closing, Phase::Buried));
        assert_eq!(state(501), (Phase::Buried, age));
        assert_eq!(claim(501), None);
        forget(501);
        assert_eq!(phase(501), Phase::Free);
        let next = claim(501).unwrap();
        assert_ne!(next, age);
        assert!(step(501, next, Phase::Closing, Phase::Buried));
        assert!(!step(501, age, Phase::Buried, Phase::Released));
    }

    #[test]
    fn streams_and_numbers_without_a_word_are_not_ours() {
        assert!(!is_ours(-1) && !is_ours(2) && !is_ours(1 << 16));
        assert!(is_ours(3));
        assert_eq!(claim(2), None);
    }
}
