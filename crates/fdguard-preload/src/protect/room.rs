//! How many numbers the dead may have: never so many that the living run out, or are pushed behind a wall.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use super::kernel;

/// Graves that are kept unless the tracer says otherwise.
const USUAL: u32 = 256;
/// More than this are never kept.
pub(super) const MOST: u32 = 512;
/// Where the sets of `select` end.
const SELECT: u32 = 1024;

static KEPT: AtomicU32 = AtomicU32::new(USUAL);
static SOFT: AtomicU32 = AtomicU32::new(0);

/// So many are to be kept.
pub(super) fn keep(graves: u32) {
    KEPT.store(graves.min(MOST), Ordering::Relaxed);
}

/// The limit may have changed.
pub(super) fn ask_limit() {
    SOFT.store(kernel::soft_limit(), Ordering::Relaxed);
}

/// The first number that programs which `select` cannot have.
pub(super) fn wall() -> u32 {
    soft().min(SELECT)
}

/// A number for what is to be out of everybody's way: behind the wall, where there is room.
pub(super) fn aside() -> u32 {
    soft().min(SELECT + 1).saturating_sub(1)
}

fn soft() -> u32 {
    SOFT.load(Ordering::Relaxed)
}

/// How many graves there may be at all.
pub(super) fn kept() -> u32 {
    KEPT.load(Ordering::Relaxed)
}

/// How many graves there may be when the lowest free number was `fd` and there were `graves`: half of what the living leave, before the
/// wall that they have not passed.
pub(super) fn allowed(fd: c_int, graves: u32) -> u32 {
    let living = fd.unsigned_abs().saturating_add(1).saturating_sub(graves);
    share(living, kept(), wall(), soft())
}

fn share(living: u32, kept: u32, wall: u32, soft: u32) -> u32 {
    let left = if living < wall { wall } else { soft };
    kept.min(left.saturating_sub(living) / 2)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn the_dead_give_way_before_every_wall() {
        let usual = |living| share(living, 256, 1024, 20_000);
        assert_eq!([10, 500, 900, 1000, 1023].map(usual), [256, 256, 62, 12, 0]);
        // Who has more than a thousand does not select.
        assert_eq!([1024, 5000, 19_990].map(usual), [256, 256, 5]);
        let small = |living| share(living, 256, 32, 32);
        assert_eq!([4, 16, 31, 32, 40].map(small), [14, 8, 0, 0, 0]);
    }
}
