//! `munmap`: an interpreter that shuts down may free frames that another thread's hook is reading.

#![expect(unsafe_code, reason = "stands in for a function of the C library")]

use core::ffi::{c_int, c_void};

use crate::language;
use crate::real::Real;

// SAFETY: the type of its manual page.
static MUNMAP: Real<unsafe extern "C" fn(*mut c_void, usize) -> c_int> =
    unsafe { Real::new(c"munmap") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    language::unmapping();
    let Some(real) = MUNMAP.get() else {
        return super::missing();
    };
    // SAFETY: the caller's own arguments.
    unsafe { real(address, length) }
}
