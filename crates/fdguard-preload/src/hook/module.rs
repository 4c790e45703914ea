//! Unloading of modules, which invalidates what is known about their addresses.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_void};

use super::missing;
use crate::real::Real;
use crate::{language, unwind};

// SAFETY: the type matches the manual page.
static DLCLOSE: Real<unsafe extern "C" fn(*mut c_void) -> c_int> = unsafe { Real::new(c"dlclose") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = DLCLOSE.get() else {
        return missing();
    };
    let is_hidden = language::unloading();
    // SAFETY: passes on the caller's argument.
    let result = unsafe { real(handle) };
    unwind::forget();
    language::unloaded(is_hidden);
    result
}
