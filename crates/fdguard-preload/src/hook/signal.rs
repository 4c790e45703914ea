//! `sigaction`: an interpreter resets its handlers when it shuts down, while its objects are whole.

#![expect(unsafe_code, reason = "stands in for a function of the C library")]

use core::ffi::{c_int, c_void};

use crate::real::Real;
use crate::why::pause;

type SigAction = unsafe extern "C" fn(c_int, *const c_void, *mut c_void) -> c_int;
// SAFETY: the type matches the manual page.
static SIGACTION: Real<SigAction> = unsafe { Real::new(c"sigaction") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn sigaction(signal: c_int, new: *const c_void, old: *mut c_void) -> c_int {
    if !new.is_null() {
        pause::resets_a_handler();
    }
    let Some(real) = SIGACTION.get() else {
        return super::missing();
    };
    // SAFETY: passes on the caller's arguments.
    unsafe { real(signal, new, old) }
}
