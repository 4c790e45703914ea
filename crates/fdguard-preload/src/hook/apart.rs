//! Threads that leave the descriptor table of their process: `unshare`, and `close_range` with
//! `CLOSE_RANGE_UNSHARE`. What such a thread closes stays open in the process, so nothing of it is
//! recorded or protected.

#![expect(unsafe_code, reason = "stands in for a function of the C library")]

use core::ffi::c_int;

use super::missing;
use crate::real::Real;
use crate::{errno, owner};

const CLONE_FILES: c_int = 0x400;
const CLOSE_RANGE_UNSHARE: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;

// SAFETY: the type matches the manual page.
static UNSHARE: Real<unsafe extern "C" fn(c_int) -> c_int> = unsafe { Real::new(c"unshare") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    let Some(real) = UNSHARE.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's argument.
    let result = unsafe { real(flags) };
    unshared(flags, result);
    result
}

/// A call of `unshare` with these flags has returned.
pub(super) fn unshared(flags: c_int, result: c_int) {
    if result == 0 && flags & CLONE_FILES != 0 {
        leave();
    }
}

/// A call of `close_range` is about to be made. It closes in the new table only.
pub(super) fn closes_range(first: u32, last: u32, flags: u32) {
    let is_valid = first <= last && flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) == 0;
    if is_valid && flags & CLOSE_RANGE_UNSHARE != 0 {
        leave();
    }
}

fn leave() {
    let error = errno::load();
    owner::leave_table();
    errno::store(error);
}
