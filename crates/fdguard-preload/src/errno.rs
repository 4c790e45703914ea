//! Saves and restores the program's `errno`.

#![expect(unsafe_code, reason = "errno is a C variable of the thread")]

use core::ffi::c_int;

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// The current value.
pub(crate) fn load() -> c_int {
    // SAFETY: the C library returns the address of the calling thread's own variable; there are no
    // preconditions.
    let place = unsafe { __errno_location() };
    // SAFETY: that address is valid and written only by this thread.
    unsafe { place.read() }
}

/// Sets the value.
pub(crate) fn store(value: c_int) {
    // SAFETY: as in `load`.
    let place = unsafe { __errno_location() };
    // SAFETY: as in `load`.
    unsafe { place.write(value) };
}
