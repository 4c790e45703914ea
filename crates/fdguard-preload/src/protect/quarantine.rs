//! Quarantine: a placeholder keeps a closed number for a while, so that it is not reused.
//!
//! A ring holds the last closes, oldest first. A number that leaves the ring is free. Each step is
//! a single atomic operation, so a second thread finds nothing left to do.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use super::batch::{self, Batch};
use super::number::{self, Age, Phase};
use super::{kernel, placeholder, room};
use crate::{real, start};

const PLACES: u64 = 1024;
/// The most yields while waiting for a number that another thread is releasing.
const PATIENCE: u32 = 1000;

/// Number in the upper half, generation in the lower; 0 if there is none.
static RING: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
/// When each was closed; written only if there is a maximum age.
static SINCE: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
/// Entries ever added to the ring, and entries removed from it.
static DUG: AtomicU64 = AtomicU64::new(0);
static LEFT: AtomicU64 = AtomicU64::new(0);
/// How long a number may stay in quarantine, in nanoseconds; 0 for any time.
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// Numbers leave quarantine at this age, at the next close.
pub(super) fn give_up_after(nanos: u64) {
    LONGEST.store(nanos, Ordering::Relaxed);
}

/// Replaces what is being closed with a placeholder. On failure it is still open.
pub(super) fn bury(fd: c_int, age: Age) -> bool {
    let is_done = replace(fd);
    if is_done && number::step(fd, age, Phase::Closing, Phase::Buried) {
        dig(fd, age);
    }
    is_done
}

fn replace(fd: c_int) -> bool {
    let is_done = placeholder::with(|stone| kernel::replace(stone, fd)).unwrap_or(false);
    if !is_done {
        placeholder::check();
    }
    is_done
}

/// After the C library closed a number by itself: takes it back if it is not in use again.
pub(super) fn occupy(fd: c_int, age: Age) {
    match placeholder::with(|stone| kernel::copy(stone, fd, true)).flatten() {
        Some(copy) if copy == fd => {
            if number::step(fd, age, Phase::Lent, Phase::Buried) {
                dig(fd, age);
            }
        }
        other => {
            number::step(fd, age, Phase::Lent, Phase::Free);
            if let Some(copy) = other {
                kernel::close(copy);
            }
        }
    }
}

fn entry(fd: c_int, age: Age) -> u64 {
    u64::from(fd.unsigned_abs()) << 32 | u64::from(age)
}

fn place(ticket: u64) -> usize {
    usize::try_from(ticket % PLACES).unwrap_or(0)
}

/// Adds a number to the ring; the oldest numbers and those beyond the limit are freed.
pub(super) fn dig(fd: c_int, age: Age) {
    let ticket = DUG.fetch_add(1, Ordering::SeqCst);
    let entry = entry(fd, age);
    let longest = LONGEST.load(Ordering::Relaxed);
    let now = if longest == 0 { 0 } else { real::now() };
    if let (Some(place), Some(since)) = (RING.get(place(ticket)), SINCE.get(place(ticket))) {
        since.store(now, Ordering::Relaxed);
        let before = place.swap(entry, Ordering::SeqCst);
        release(before);
        // The thread that emptied this slot did so before it was filled.
        if LEFT.load(Ordering::SeqCst) > ticket {
            release(place.swap(0, Ordering::SeqCst));
        }
    }
    make_place(room::kept());
    if longest != 0 {
        give_up(now.saturating_sub(longest));
    }
    if !super::is_on() {
        // Protection ended meanwhile.
        trim(0);
    }
    tell_count();
}

/// Records how many numbers are kept, including the placeholder's own.
pub(super) fn tell_count() {
    if let Some(mapping) = start::current() {
        let stone = u32::from(placeholder::number() >= 0);
        mapping.quarantined(count().saturating_add(stone));
    }
}

/// How many numbers are in quarantine.
pub(super) fn count() -> u32 {
    let dug = DUG.load(Ordering::Relaxed);
    let graves = dug.saturating_sub(LEFT.load(Ordering::Relaxed));
    u32::try_from(graves).unwrap_or(u32::MAX)
}

/// Frees the oldest until there are at most `most`.
#[inline]
pub(super) fn trim(most: u32) {
    loop {
        let more = count().saturating_sub(most);
        if more == 0 || !free_oldest(more) {
            tell_count();
            return;
        }
    }
}

/// Before a new entry: frees several at once, because that costs the kernel little more than one.
#[inline]
fn make_place(most: u32) {
    if count() > most {
        free_oldest((most / 16).max(1));
    }
}

/// Frees those that were closed before this time.
fn give_up(before: u64) {
    while count() > 0 {
        let since = SINCE.get(place(LEFT.load(Ordering::Relaxed)));
        if since.is_none_or(|since| since.load(Ordering::Relaxed) >= before) || !free_oldest(1) {
            return;
        }
    }
}

/// Frees all numbers, or else the placeholder itself; returns whether there was any.
pub(super) fn clear() -> bool {
    let had_graves = count() > 0;
    trim(0);
    if had_graves {
        return true;
    }
    placeholder::give_up()
}

/// Frees up to `wanted` of the oldest, at most one batch; false if there is none.
fn free_oldest(wanted: u32) -> bool {
    let mut bundle = Batch::new();
    let mut is_any = false;
    for _ in 0..wanted.min(batch::MOST) {
        let oldest = LEFT.load(Ordering::SeqCst);
        if oldest >= DUG.load(Ordering::SeqCst) {
            break;
        }
        is_any = true;
        let is_mine = LEFT
            .compare_exchange(oldest, oldest + 1, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        if is_mine && let Some(place) = RING.get(place(oldest)) {
            bundle.add(place.swap(0, Ordering::SeqCst));
        }
    }
    bundle.free();
    is_any
}

/// Frees a number, if its state still matches the ring's entry.
fn release(entry: u64) {
    if entry != 0 {
        let mut bundle = Batch::new();
        bundle.add(entry);
        bundle.free();
    }
}

/// What a lent number was before.
pub(super) type Loan = (Age, Phase);

/// Lends a protected number to a call that gives it to something else. `None` if it is not
/// protected at the moment.
pub(super) fn lend(fd: c_int) -> Option<Loan> {
    for _ in 0..PATIENCE {
        let (phase, age) = number::state(fd);
        match phase {
            Phase::Buried | Phase::PutOff => {
                if number::step(fd, age, phase, Phase::Lent) {
                    return Some((age, phase));
                }
            }
            Phase::Released => kernel::give_way(),
            Phase::Free | Phase::Closing | Phase::Lent => return None,
        }
    }
    None
}

/// The call failed: restores the number's state.
pub(super) fn take_back(fd: c_int, (age, phase): Loan) {
    if number::step(fd, age, Phase::Lent, phase) {
        dig(fd, age);
    }
}

/// In a forked child: finishes what other threads had begun, because they do not exist here.
pub(super) fn reconcile() {
    placeholder::reconcile();
    for fd in 3..number::used() {
        let (phase, age) = number::state(fd);
        match phase {
            Phase::Free | Phase::Buried => {}
            Phase::PutOff => {
                kernel::close(fd);
                number::step(fd, age, phase, Phase::Free);
            }
            Phase::Closing | Phase::Released | Phase::Lent => {
                if kernel::is_stone(fd) {
                    kernel::close(fd);
                }
                number::step(fd, age, phase, Phase::Free);
            }
        }
    }
}
