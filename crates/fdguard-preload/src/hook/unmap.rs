//! `munmap`: an interpreter that shuts down may free frames that another thread's hook is reading.

#![expect(unsafe_code, reason = "stands in for a function of the C library")]

use core::ffi::{c_int, c_void};

use crate::language;
use crate::real::Real;

// SAFETY: the type matches the manual page.
static MUNMAP: Real<unsafe extern "C" fn(*mut c_void, usize) -> c_int> =
    unsafe { Real::new(c"munmap") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    language::unmapping();
    let Some(real) = MUNMAP.get() else {
        return super::missing();
    };
    // SAFETY: passes on the caller's arguments.
    unsafe { real(address, length) }
}
