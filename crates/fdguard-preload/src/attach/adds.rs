//! The loader's count of the modules that were ever loaded, read without asking the loader.
//!
//! It is a private variable behind the loader's locks. Its place is found by its value and by the
//! three unlocked mutexes in front of it; if that fits no place or several, it stays unknown, and
//! only `dlsym` leads to another look.

#![expect(unsafe_code, reason = "reads a variable of the loader")]

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::{loaded, scope};

/// An unlocked recursive mutex: lock and count, owner and users, kind, two links.
const MUTEX: [u64; 5] = [0, 0, 1, 0, 0];
/// Before glibc 2.35 there are two of them.
const MUTEXES: usize = 2;

static PLACE: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// Looks for the place.
pub(super) fn find() {
    let Some((start, bytes)) = scope::extent(c"_rtld_global") else {
        return;
    };
    let words = bytes / size_of::<u64>();
    let adds = loaded::adds();
    let word = |index: usize| {
        let place = (start as *const AtomicU64).wrapping_add(index);
        // SAFETY: a word of the loader's own variable, as its symbol says.
        unsafe { &*place }.load(Ordering::Relaxed)
    };
    let mutexes = MUTEXES * MUTEX.len();
    let is_it = |index: &usize| {
        let before = (index - mutexes..*index).map(word);
        word(*index) == adds && before.eq(MUTEX.into_iter().cycle().take(mutexes))
    };
    let mut places = (mutexes..words).filter(is_it);
    let (first, second) = (places.next(), places.next());
    let place = match (first, second) {
        (Some(index), None) => (start as *mut AtomicU64).wrapping_add(index),
        _ => core::ptr::null_mut(),
    };
    PLACE.store(place, Ordering::Release);
}

/// The count; `None` if its place is unknown.
pub(super) fn now() -> Option<u64> {
    word_before(0)
}

/// Whether a thread is changing the list of modules; `None` if that is unknown. To wait for it is
/// wrong in a signal handler, which may have interrupted this very thread, and in a forked child,
/// where it may not exist.
pub(super) fn is_changing() -> Option<bool> {
    let mut locks = (1..=MUTEXES).map(|mutex| word_before(mutex * MUTEX.len()));
    locks.try_fold(false, |is_changing, lock| Some(is_changing | (lock? != 0)))
}

/// The word that lies this many words in front of the count.
fn word_before(words: usize) -> Option<u64> {
    let place = PLACE.load(Ordering::Acquire);
    if place.is_null() {
        return None;
    }
    let place = place.wrapping_sub(words);
    // SAFETY: `find` saw the count and the mutexes in front of it in a variable of the loader,
    // which is never unloaded.
    let word = unsafe { &*place };
    Some(word.load(Ordering::Acquire))
}
