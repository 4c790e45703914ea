//! Waits for children: each reaped child is reported.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_uint, c_void};

use super::missing;
use crate::children::reaped;
use crate::real::Real;

const STOPPED: c_int = 0x7f;
const CONTINUED: c_int = 0xffff;

/// Only peeks: the child can be waited for again.
const WNOWAIT: c_int = 0x0100_0000;
/// Exited, killed, dumped.
const ENDS: core::ops::RangeInclusive<c_int> = 1..=3;

/// A wait returned this child with this status. A child that was stopped or continued still exists.
pub(super) fn collected(pid: c_int, status: c_int) -> c_int {
    if pid > 0 && status & 0x7f != STOPPED && status != CONTINUED {
        reaped(pid);
    }
    pid
}

/// A function that waits and writes a status to the caller's pointer, which may be null.
macro_rules! waits {
    ($real:ident, $name:literal, fn $function:ident([$($before:ident: $first:ty)?] status $(, $argument:ident: $type:ty)*)) => {
        static $real: Real<unsafe extern "C" fn($($first,)? *mut c_int $(, $type)*) -> c_int> =
            // SAFETY: the type matches the manual page.
            unsafe { Real::new($name) };

        // SAFETY: interposed on purpose; the type matches the manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        unsafe extern "C" fn $function($($before: $first,)? status: *mut c_int $(, $argument: $type)*) -> c_int {
            let Some(real) = $real.get() else {
                return missing();
            };
            let mut own: c_int = 0;
            let place = if status.is_null() { &raw mut own } else { status };
            // SAFETY: the caller's arguments, except for a local to write to.
            let pid = unsafe { real($($before,)? place $(, $argument)*) };
            if pid <= 0 {
                return pid;
            }
            // SAFETY: the call returned a child, so its status was written.
            collected(pid, unsafe { place.read() })
        }
    };
}

waits! { WAIT, c"wait", fn wait([] status) }
waits! { WAITPID, c"waitpid", fn waitpid([pid: c_int] status, options: c_int) }
waits! { UNDERSCORED_WAITPID, c"__waitpid", fn __waitpid([pid: c_int] status, options: c_int) }
waits! { WAIT3, c"wait3", fn wait3([] status, options: c_int, usage: *mut c_void) }
waits! { WAIT4, c"wait4", fn wait4([pid: c_int] status, options: c_int, usage: *mut c_void) }

/// `siginfo_t`, as far as a wait fills it.
#[repr(C)]
pub(super) struct EndedChild {
    signal: c_int,
    errno: c_int,
    code: c_int,
    unused: c_int,
    pid: c_int,
    rest: [c_int; 27],
}

impl EndedChild {
    pub(super) const NONE: Self = Self {
        signal: 0,
        errno: 0,
        code: 0,
        unused: 0,
        pid: 0,
        rest: [0; 27],
    };

    /// A `waitid` call with these options wrote this.
    pub(super) fn collected(&self, options: c_int) {
        if options & WNOWAIT == 0 && ENDS.contains(&self.code) {
            reaped(self.pid);
        }
    }
}

// SAFETY: the type matches the manual page.
static WAITID: Real<unsafe extern "C" fn(c_int, c_uint, *mut EndedChild, c_int) -> c_int> =
    unsafe { Real::new(c"waitid") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn waitid(
    kind: c_int,
    id: c_uint,
    found: *mut EndedChild,
    options: c_int,
) -> c_int {
    let Some(real) = WAITID.get() else {
        return missing();
    };
    let mut own = EndedChild::NONE;
    let place = if found.is_null() { &raw mut own } else { found };
    // SAFETY: the caller's arguments, except for a local to write to.
    let result = unsafe { real(kind, id, place, options) };
    if result == 0 {
        // SAFETY: the call succeeded, so it wrote there; if no child was ready it wrote a zero.
        unsafe { &*place }.collected(options);
    }
    result
}
