//! The placeholder that all others are duplicates of: a descriptor that can be neither read nor
//! written, at an unused high number.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::{kernel, room};

/// The most yields while waiting for threads that are copying it.
const PATIENCE: u32 = 1000;
const NONE: c_int = -1;

static STONE: AtomicI32 = AtomicI32::new(NONE);
/// How many threads are about to copy it: its number must not be given to something else meanwhile.
static COPYING: AtomicU32 = AtomicU32::new(0);

/// Whether this number is the original placeholder's: the program does not own it.
pub(super) fn is_it(fd: c_int) -> bool {
    fd >= 0 && fd == STONE.load(Ordering::Relaxed)
}

/// Its number, -1 if there is none.
pub(super) fn number() -> c_int {
    STONE.load(Ordering::Relaxed)
}

/// Creates the original placeholder, at an unused high number.
pub(super) fn erect() -> bool {
    if number() != NONE {
        return true;
    }
    let Some(fd) = kernel::open_stone() else {
        return false;
    };
    let high = c_int::try_from(room::aside())
        .ok()
        .and_then(|least| kernel::copy(fd, least, true));
    if high.is_some() {
        kernel::close(fd);
    }
    let found = high.unwrap_or(fd);
    let is_first = STONE
        .compare_exchange(NONE, found, Ordering::SeqCst, Ordering::Relaxed)
        .is_ok();
    if !is_first {
        kernel::close(found);
    }
    true
}

/// Creates it again after it was given up for its number.
#[inline]
pub(super) fn erect_again() {
    if number() == NONE && erect() && !super::is_on() {
        // Protection ended meanwhile.
        give_up();
    }
}

/// The program wants the placeholder's own number: moves it to another.
pub(super) fn make_way(fd: c_int) {
    let other = kernel::copy(fd, fd.saturating_add(1), true);
    let other = other.or_else(|| kernel::copy(fd, 3, true)).unwrap_or(NONE);
    let is_done = STONE
        .compare_exchange(fd, other, Ordering::SeqCst, Ordering::Relaxed)
        .is_ok();
    if is_done {
        are_copies_done();
    } else if other != NONE {
        kernel::close(other);
    }
}

/// Runs `work` with the placeholder, if there is one.
pub(super) fn with<T>(work: impl FnOnce(c_int) -> T) -> Option<T> {
    COPYING.fetch_add(1, Ordering::SeqCst);
    let stone = STONE.load(Ordering::SeqCst);
    let result = (stone != NONE).then(|| work(stone));
    COPYING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Whether no thread is copying the placeholder whose number was removed from [`STONE`].
fn are_copies_done() -> bool {
    for _ in 0..PATIENCE {
        if COPYING.load(Ordering::SeqCst) == 0 {
            return true;
        }
        kernel::give_way();
    }
    false
}

/// It could not be copied: if it was closed behind the library's back, the next close creates
/// another.
#[cold]
pub(super) fn check() {
    let stone = number();
    if stone != NONE && !kernel::is_stone(stone) {
        let _ = STONE.compare_exchange(stone, NONE, Ordering::SeqCst, Ordering::Relaxed);
    }
}

/// Gives up the placeholder for its number; returns whether there was one.
pub(super) fn give_up() -> bool {
    let stone = STONE.swap(NONE, Ordering::SeqCst);
    if stone == NONE {
        return false;
    }
    if are_copies_done() {
        kernel::close(stone);
        return true;
    }
    STONE.store(stone, Ordering::SeqCst);
    false
}

/// In a forked child no other thread is copying it.
pub(super) fn reconcile() {
    COPYING.store(0, Ordering::SeqCst);
}
