//! Protection: no stale number reaches another file. It is active only on request
//! (`FDGUARD_PROTECT`), because it costs the program descriptors.
//!
//! A placeholder keeps a closed number for a while (`quarantine.rs`), a close during another
//! thread's call waits for that call (`stranger.rs`), and databases get a range of numbers without
//! sockets (`reserved_range.rs`). See decisions 034 and 035.

pub(crate) mod answer;
mod batch;
mod claim;
pub(crate) mod close;
mod glob;
mod kernel;
mod number;
mod placeholder;
mod quarantine;
pub(crate) mod reserved_range;
mod room;
pub(crate) mod stranger;

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::{errno, owner, start, thread};

pub(crate) use claim::{claim, cover, sweep};

const EBADF: c_int = 9;
const EMFILE: c_int = 24;

/// The level: `warn-once`, `warn-always` or `fatal`; anything else turns protection off.
const LEVEL_NAME: &CStr = c"FDGUARD_PROTECT";
/// How many closed numbers are kept.
const KEEP_NAME: &CStr = c"FDGUARD_PROTECT_KEEP";
/// For how many milliseconds at most.
const AGE_NAME: &CStr = c"FDGUARD_PROTECT_AGE";

const OFF: u32 = 0;
const WARN: u32 = 1;
const FATAL: u32 = 2;
static LEVEL: AtomicU32 = AtomicU32::new(OFF);

/// Whether the program is protected.
#[inline]
pub(crate) fn is_on() -> bool {
    LEVEL.load(Ordering::Relaxed) != OFF
}

fn is_fatal() -> bool {
    LEVEL.load(Ordering::Relaxed) == FATAL
}

/// Starts protection before the program begins, if it is requested.
pub(crate) fn start() {
    let mut room = [0; 32];
    let level = match start::setting(LEVEL_NAME, &mut room) {
        Some(b"warn-once" | b"warn-always") => WARN,
        Some(b"fatal") => FATAL,
        _ => return,
    };
    let Some(mapping) = start::current() else {
        return;
    };
    let keep = start::setting(KEEP_NAME, &mut room).and_then(decimal);
    room::keep(keep);
    let age = start::setting(AGE_NAME, &mut room).and_then(decimal);
    quarantine::give_up_after(u64::from(age.unwrap_or(0)) * 1_000_000);
    let error = errno::load();
    number::reset();
    reserved_range::reserve();
    room::ask_limit();
    if placeholder::erect() {
        LEVEL.store(level, Ordering::Release);
        mapping.protect();
        quarantine::tell_count();
    }
    errno::store(error);
}

/// In a forked child, which inherits its parent's quarantined numbers; the mapping is its own.
pub(crate) fn forked() {
    if is_on() {
        quarantine::reconcile();
        reserved_range::forked();
        if let Some(mapping) = start::current() {
            mapping.protect();
            quarantine::tell_count();
        }
    }
}

/// Stops protection: the program is about to forbid the calls that it needs.
pub(crate) fn stop() {
    if is_on() && owner::is_here() {
        let error = errno::load();
        quarantine::trim(0);
        LEVEL.store(OFF, Ordering::Release);
        quarantine::clear();
        errno::store(error);
    }
}

/// Ends protection in a program that goes on: gives back every number that it keeps. A thread that
/// is closing one at this moment gives it back itself.
pub(crate) fn finish() {
    if is_on() && owner::is_here() {
        LEVEL.store(OFF, Ordering::SeqCst);
        quarantine::trim(0);
        placeholder::give_up();
        quarantine::tell_count();
    }
}

/// Whether this number is protection's own, which the program does not know of.
pub(crate) fn is_stone(fd: u32) -> bool {
    c_int::try_from(fd).is_ok_and(placeholder::is_it)
}

/// The program's limits may have changed.
pub(crate) fn limit_changed() {
    if is_on() && owner::is_here() {
        room::ask_limit();
        // Numbers that were kept under a higher limit.
        quarantine::trim(room::allowed(0, 0));
    }
}

/// The program waits for at most `most` events. Event loops with an array of that length have no
/// slot for a higher number.
#[inline]
pub(crate) fn has_places(most: c_int) {
    if is_on() {
        room::note_places(most);
    }
}

/// After a call that failed for lack of a number: whether one may be free now.
pub(crate) fn makes_room() -> bool {
    let is_ours = is_on() && errno::load() == EMFILE && owner::is_here();
    is_ours && quarantine::clear()
}

/// The kernel returned this number.
#[inline]
pub(crate) fn arrived(fd: c_int) {
    if fd >= 0 && is_on() && !thread::is_apart() {
        note_reuse(fd);
    }
}

fn note_reuse(fd: c_int) {
    number::forget(fd);
    let graves = quarantine::count();
    room::note_living(fd, graves);
    if graves > 0 {
        let allowed = room::allowed(fd, graves);
        if graves > allowed && owner::is_here() {
            quarantine::trim(allowed);
        }
    }
}

fn decimal(text: &[u8]) -> Option<u32> {
    let mut value = 0_u32;
    for byte in text {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value = value.checked_mul(10)?.checked_add(u32::from(digit))?;
    }
    (!text.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn a_number_is_digits_alone() {
        assert_eq!(decimal(b"256"), Some(256));
        assert_eq!(
            [&b""[..], b"-1", b"4294967296", b"9x"].map(decimal),
            [None; 4]
        );
    }
}
