//! Pseudo-terminals.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_char, c_int, c_void};

use fdguard_wire::OpenCall;

use super::{missing, retry_when_full};
use crate::children::started;
use crate::real::Real;
use crate::record::{born_within, now};

// SAFETY: the type matches the manual page.
static POSIX_OPENPT: Real<unsafe extern "C" fn(c_int) -> c_int> =
    unsafe { Real::new(c"posix_openpt") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn posix_openpt(flags: c_int) -> c_int {
    let Some(real) = POSIX_OPENPT.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(flags) });
    born_within(fd, OpenCall::Openpt, since);
    fd
}

// SAFETY: the type matches the manual page.
static GETPT: Real<unsafe extern "C" fn() -> c_int> = unsafe { Real::new(c"getpt") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn getpt() -> c_int {
    let Some(real) = GETPT.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real() });
    born_within(fd, OpenCall::Openpt, since);
    fd
}

// SAFETY: the type matches the manual page.
static OPENPTY: Real<
    unsafe extern "C" fn(
        *mut c_int,
        *mut c_int,
        *mut c_char,
        *const c_void,
        *const c_void,
    ) -> c_int,
> = unsafe { Real::new(c"openpty") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn openpty(
    master: *mut c_int,
    slave: *mut c_int,
    name: *mut c_char,
    modes: *const c_void,
    size: *const c_void,
) -> c_int {
    let Some(real) = OPENPTY.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: passes on the caller's arguments.
    let result = retry_when_full(|| unsafe { real(master, slave, name, modes, size) });
    if result == 0 {
        // SAFETY: the call succeeded, so it wrote the number.
        born_within(unsafe { master.read() }, OpenCall::Openpty, since);
        // SAFETY: as above.
        born_within(unsafe { slave.read() }, OpenCall::Openpty, since);
    }
    result
}

// SAFETY: the type matches the manual page.
static FORKPTY: Real<
    unsafe extern "C" fn(*mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int,
> = unsafe { Real::new(c"forkpty") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn forkpty(
    master: *mut c_int,
    name: *mut c_char,
    modes: *const c_void,
    size: *const c_void,
) -> c_int {
    let Some(real) = FORKPTY.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: passes on the caller's arguments.
    let result = retry_when_full(|| unsafe { real(master, name, modes, size) });
    // In the child it is already closed.
    if result > 0 {
        // SAFETY: the call succeeded, so it wrote the number.
        born_within(unsafe { master.read() }, OpenCall::Openpty, since);
    }
    started(result)
}
