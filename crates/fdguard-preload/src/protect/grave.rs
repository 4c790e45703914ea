//! Tombstones: a closed number is kept for a while by a descriptor that can do nothing, so that nobody else gets it.
//!
//! A ring holds the last closes, oldest first; what falls out is really free. All steps are single atomic ones, and whoever comes
//! second finds that there is nothing left to do.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use super::number::{self, Age, Phase};
use super::{kernel, room};
use crate::real;

const PLACES: u64 = 1024;
/// A grave that somebody takes away at this moment is waited for so many turns.
const PATIENCE: u32 = 1000;
/// So many are freed together at most.
const BUNDLE: u32 = 16;
/// No tombstone.
const NONE: c_int = -1;

/// Number in the upper half, age in the lower; 0: none.
static RING: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
/// When each was closed; written only where graves have an age.
static SINCE: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
/// Graves that were ever dug, and those that were taken out of the ring.
static DUG: AtomicU64 = AtomicU64::new(0);
static LEFT: AtomicU64 = AtomicU64::new(0);
/// The descriptor that all tombstones are copies of.
static STONE: AtomicI32 = AtomicI32::new(NONE);
/// How many threads are about to copy it: its number must not be given to something else meanwhile.
static COPYING: AtomicU32 = AtomicU32::new(0);
/// How old a grave may become, in nanoseconds; 0: any age.
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// Graves are given up at this age, when somebody closes something.
pub(super) fn give_up_after(nanos: u64) {
    LONGEST.store(nanos, Ordering::Relaxed);
}

/// Whether this number is the tombstone that the others are made of: the program does not have it.
pub(super) fn is_stone(fd: c_int) -> bool {
    fd >= 0 && fd == STONE.load(Ordering::Relaxed)
}

pub(super) fn stone() -> c_int {
    STONE.load(Ordering::Relaxed)
}

/// Makes the first tombstone, with a number that is out of the way.
pub(super) fn erect() -> bool {
    if stone() != NONE {
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

/// Makes it again when it was given up for room.
#[inline]
pub(super) fn erect_again() {
    if stone() == NONE {
        erect();
    }
}

/// The program wants the tombstone's own number: another one is found for it.
pub(super) fn move_stone(fd: c_int) {
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

/// Works with the tombstone, if there is one.
pub(super) fn with_stone<T>(work: impl FnOnce(c_int) -> T) -> Option<T> {
    COPYING.fetch_add(1, Ordering::SeqCst);
    let stone = STONE.load(Ordering::SeqCst);
    let result = (stone != NONE).then(|| work(stone));
    COPYING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Whether nobody copies the tombstone whose number was taken from [`STONE`].
fn are_copies_done() -> bool {
    for _ in 0..PATIENCE {
        if COPYING.load(Ordering::SeqCst) == 0 {
            return true;
        }
        kernel::give_way();
    }
    false
}

/// Puts a tombstone in the place of what is being closed. On failure it is as open as before.
pub(super) fn bury(fd: c_int, age: Age) -> bool {
    let is_done = replace(fd);
    if is_done && number::step(fd, age, Phase::Closing, Phase::Buried) {
        dig(fd, age);
    }
    is_done
}

/// The same for one that is in the ring already.
pub(super) fn bury_late(fd: c_int, age: Age) -> bool {
    let is_done = replace(fd);
    if is_done && number::step(fd, age, Phase::Closing, Phase::Buried) && is_past(age, fd) {
        release(entry(fd, age));
    }
    is_done
}

fn replace(fd: c_int) -> bool {
    with_stone(|stone| kernel::replace(stone, fd)).unwrap_or(false)
}

/// Whether its place in the ring was given to others meanwhile.
fn is_past(age: Age, fd: c_int) -> bool {
    let wanted = entry(fd, age);
    !RING
        .iter()
        .any(|place| place.load(Ordering::SeqCst) == wanted)
}

/// After the C library closed a number by itself: takes it back if nobody has it yet.
pub(super) fn occupy(fd: c_int, age: Age) {
    match with_stone(|stone| kernel::copy(stone, fd, true)).flatten() {
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

/// Puts a grave into the ring; what is too old or too much falls out.
pub(super) fn dig(fd: c_int, age: Age) {
    let ticket = DUG.fetch_add(1, Ordering::SeqCst);
    let entry = entry(fd, age);
    let longest = LONGEST.load(Ordering::Relaxed);
    let now = if longest == 0 { 0 } else { real::now() };
    if let (Some(place), Some(since)) = (RING.get(place(ticket)), SINCE.get(place(ticket))) {
        since.store(now, Ordering::Relaxed);
        let before = place.swap(entry, Ordering::SeqCst);
        release(before);
        // Who emptied this place before it was filled has passed.
        if LEFT.load(Ordering::SeqCst) > ticket {
            release(place.swap(0, Ordering::SeqCst));
        }
    }
    make_place(room::kept());
    if longest != 0 {
        give_up(now.saturating_sub(longest));
    }
}

/// How many there are.
pub(super) fn count() -> u32 {
    let dug = DUG.load(Ordering::Relaxed);
    let graves = dug.saturating_sub(LEFT.load(Ordering::Relaxed));
    u32::try_from(graves).unwrap_or(u32::MAX)
}

/// Frees the oldest until there are no more than this.
#[inline]
pub(super) fn trim(most: u32) {
    loop {
        let more = count().saturating_sub(most);
        if more == 0 || !free_oldest(more) {
            return;
        }
    }
}

/// In front of a new grave: several at once, because that costs the kernel little more than one.
#[inline]
fn make_place(most: u32) {
    if count() > most {
        free_oldest((most / 16).max(1));
    }
}

/// Frees those that were closed before.
fn give_up(before: u64) {
    while count() > 0 {
        let since = SINCE.get(place(LEFT.load(Ordering::Relaxed)));
        if since.is_none_or(|since| since.load(Ordering::Relaxed) >= before) || !free_oldest(1) {
            return;
        }
    }
}

/// Frees all, and the tombstone itself; whether there was any.
pub(super) fn clear() -> bool {
    let had_graves = count() > 0;
    trim(0);
    if had_graves {
        return true;
    }
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

/// Frees so many of the oldest, as far as they go into one bundle; false when there is none.
fn free_oldest(wanted: u32) -> bool {
    let mut bundle = Bundle::new();
    let mut is_any = false;
    for _ in 0..wanted.min(BUNDLE) {
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

/// Really frees a number, if it is still what the ring says.
fn release(entry: u64) {
    if entry != 0 {
        let mut bundle = Bundle::new();
        bundle.add(entry);
        bundle.free();
    }
}

/// Graves that are freed together.
struct Bundle {
    graves: [(c_int, Age); BUNDLE as usize],
    used: usize,
}

impl Bundle {
    fn new() -> Self {
        Self {
            graves: [(NONE, 0); BUNDLE as usize],
            used: 0,
        }
    }

    /// Takes one, if it is still what the ring says.
    fn add(&mut self, entry: u64) {
        if entry == 0 {
            return;
        }
        let fd = c_int::try_from(entry >> 32).unwrap_or(NONE);
        let age = (entry & 0xffff_ffff) as Age;
        if number::step(fd, age, Phase::PutOff, Phase::Released) {
            // Its owner never came out.
            kernel::close(fd);
            number::step(fd, age, Phase::Released, Phase::Free);
        } else if let Some(place) = self.graves.get_mut(self.used)
            && number::step(fd, age, Phase::Buried, Phase::Released)
        {
            *place = (fd, age);
            self.used += 1;
        }
    }

    /// Closes them, neighbours together. Code that does without the C library may have closed one, and opened something else.
    fn free(&self) {
        let graves = self.graves.get(..self.used).unwrap_or(&[]);
        let dead = kernel::dead(graves.iter().map(|(fd, _)| *fd));
        let is_dead = |at: usize| dead >> at & 1 == 1;
        let mut at = 0;
        while let Some((first, _)) = graves.get(at) {
            let mut last = *first;
            let mut next = at + 1;
            while is_dead(at)
                && is_dead(next)
                && graves.get(next).is_some_and(|(fd, _)| *fd == last + 1)
            {
                last += 1;
                next += 1;
            }
            if is_dead(at) {
                kernel::close_all(*first, last);
            }
            at = next;
        }
        for (fd, age) in graves {
            number::step(*fd, *age, Phase::Released, Phase::Free);
        }
    }
}

/// What was lent, to be taken back.
pub(super) type Loan = (Age, Phase);

/// Lends a number that is not the kernel's to a call that gives it to something else. Nothing for one that is.
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

/// The call failed: it is what it was.
pub(super) fn take_back(fd: c_int, (age, phase): Loan) {
    if number::step(fd, age, Phase::Lent, phase) {
        dig(fd, age);
    }
}

/// In a forked child: what other threads had begun is finished, they are not here.
pub(super) fn settle() {
    COPYING.store(0, Ordering::SeqCst);
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
