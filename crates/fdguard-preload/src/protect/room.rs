//! How many closed numbers may be kept: never so many that the program runs out of numbers or
//! crosses a limit.
//!
//! Programs size arrays by the numbers they expect. Only hints of that are visible: the limit, how
//! many events an event loop asks for, and the most descriptors ever open. If a program has few,
//! few are kept.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use super::kernel;

/// Numbers that are kept unless the tracer chooses otherwise.
const USUAL: u32 = 256;
/// Never keep more than this.
pub(super) const MOST: u32 = 512;
/// The first number that a `select` set cannot hold.
const SELECT: u32 = 1024;

/// This many may be kept in any program.
const FEW: u32 = 24;
/// An event loop that asks for fewer events has no array of that length.
const LEAST_PLACES: u32 = 16;

static KEPT: AtomicU32 = AtomicU32::new(USUAL);
/// Whether the tracer chose how many to keep: then that applies to small programs, too.
static IS_CHOSEN: AtomicU32 = AtomicU32::new(0);
/// The most descriptors that the program ever had at a time.
static PEAK: AtomicU32 = AtomicU32::new(0);
/// The most events that it ever waited for.
static PLACES: AtomicU32 = AtomicU32::new(0);
static SOFT: AtomicU32 = AtomicU32::new(0);

/// Sets how many to keep; `None` for the usual number.
pub(super) fn keep(graves: Option<u32>) {
    KEPT.store(graves.unwrap_or(USUAL).min(MOST), Ordering::Relaxed);
    IS_CHOSEN.store(u32::from(graves.is_some()), Ordering::Relaxed);
}

/// The limit may have changed.
pub(super) fn ask_limit() {
    SOFT.store(kernel::soft_limit(), Ordering::Relaxed);
}

/// The first number that programs using `select` cannot use.
pub(super) fn wall() -> u32 {
    soft().min(SELECT)
}

/// A number out of the program's way: beyond the `select` limit, if the soft limit allows it.
pub(super) fn aside() -> u32 {
    soft().min(SELECT + 1).saturating_sub(1)
}

fn soft() -> u32 {
    SOFT.load(Ordering::Relaxed)
}

/// The most numbers that may be kept at all.
pub(super) fn kept() -> u32 {
    let kept = KEPT.load(Ordering::Relaxed);
    if IS_CHOSEN.load(Ordering::Relaxed) != 0 {
        return kept;
    }
    in_proportion(kept, PEAK.load(Ordering::Relaxed))
}

/// A program with few descriptors expects low numbers: keep at most twice as many as it ever had.
fn in_proportion(kept: u32, peak: u32) -> u32 {
    kept.min(peak.saturating_mul(2).max(FEW))
}

/// The kernel returned this number while `graves` numbers were kept.
#[inline]
pub(super) fn note_living(fd: c_int, graves: u32) {
    let living = living(fd, graves);
    if PEAK.load(Ordering::Relaxed) < living {
        PEAK.fetch_max(living, Ordering::Relaxed);
    }
}

/// The program waits for at most `most` events.
#[inline]
pub(super) fn note_places(most: c_int) {
    let places = most.unsigned_abs();
    if most > 0 && PLACES.load(Ordering::Relaxed) < places {
        PLACES.fetch_max(places, Ordering::Relaxed);
    }
}

fn living(fd: c_int, graves: u32) -> u32 {
    fd.unsigned_abs().saturating_add(1).saturating_sub(graves)
}

/// How many numbers may be kept if the lowest free number was `fd` and `graves` were kept: half of
/// what the open descriptors leave below the next limit.
pub(super) fn allowed(fd: c_int, graves: u32) -> u32 {
    let places = PLACES.load(Ordering::Relaxed);
    let walls = [places, wall(), soft()];
    share(living(fd, graves), kept(), walls)
}

/// Half of what is left below the first limit that the open descriptors have not passed. A program
/// that asks for fewer events than it has descriptors has no array of that length.
fn share(living: u32, kept: u32, [places, wall, soft]: [u32; 3]) -> u32 {
    let is_wall = |number: u32| number > living && number < soft;
    let mut next = soft;
    for number in [wall, if places < LEAST_PLACES { soft } else { places }] {
        if is_wall(number) {
            next = next.min(number);
        }
    }
    kept.min(next.saturating_sub(living) / 2)
}

#[cfg(test)]
mod tests {
    use super::{in_proportion, share};

    #[test]
    fn the_dead_give_way_before_every_wall() {
        let usual = |living| share(living, 256, [0, 1024, 20_000]);
        assert_eq!([10, 500, 900, 1000, 1023].map(usual), [256, 256, 62, 12, 0]);
        // A program with more than a thousand does not use select.
        assert_eq!([1024, 5000, 19_990].map(usual), [256, 256, 5]);
        let small = |living| share(living, 256, [0, 32, 32]);
        assert_eq!([4, 16, 31, 32, 40].map(small), [14, 8, 0, 0, 0]);
    }

    /// `wrk -c20` has room for 70 numbers, `redis --maxclients 20` for 148, `haproxy` with `maxconn
    /// 20` for some 60.
    #[test]
    fn a_program_with_a_small_table_is_not_pushed_out_of_it() {
        let numbers = |living: u32, peak: u32, places: u32| {
            living + share(living, in_proportion(256, peak), [places, 1024, 20_000])
        };
        assert!(numbers(28, 28, 70) < 70);
        assert!([8, 28].map(|living| numbers(living, 28, 148)) < [148; 2]);
        assert!(numbers(10_010, 10_010, 10_128) < 10_128);
        assert!(numbers(10, 10, 0) <= 36, "before it waits for anything");
        // A program that asks for fewer events than it has descriptors has no such array.
        assert_eq!(share(40, 256, [20, 1024, 20_000]), 256);
        assert_eq!(share(40, 256, [3, 1024, 20_000]), 256);
    }
}
