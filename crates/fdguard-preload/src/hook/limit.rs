//! Changes of resource limits, which protection must respect.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_void};

use super::missing;
use crate::protect;
use crate::real::Real;

/// A function that may change a limit.
macro_rules! limits {
    ($real:ident, $name:literal, fn $function:ident($($argument:ident: $type:ty),*)) => {
        static $real: Real<unsafe extern "C" fn($($type),*) -> c_int> =
            // SAFETY: the type matches the manual page.
            unsafe { Real::new($name) };

        // SAFETY: interposed on purpose; the type matches the manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        unsafe extern "C" fn $function($($argument: $type),*) -> c_int {
            let Some(real) = $real.get() else {
                return missing();
            };
            // SAFETY: passes on the caller's arguments.
            let result = unsafe { real($($argument),*) };
            protect::limit_changed();
            result
        }
    };
}

limits! { SETRLIMIT, c"setrlimit", fn setrlimit(which: c_int, limits: *const c_void) }
limits! { SETRLIMIT64, c"setrlimit64", fn setrlimit64(which: c_int, limits: *const c_void) }
limits! { PRLIMIT, c"prlimit",
fn prlimit(pid: c_int, which: c_int, new: *const c_void, old: *mut c_void) }
limits! { PRLIMIT64, c"prlimit64",
fn prlimit64(pid: c_int, which: c_int, new: *const c_void, old: *mut c_void) }
