//! Pseudo-terminals.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_char, c_int, c_void};

use fdguard_wire::OpenCall;

use super::opens;
use super::retry::{open_within, retry_when_full};
use crate::children::started;
use crate::record::{born_within, now};

opens! { POSIX_OPENPT, c"posix_openpt",
fn posix_openpt(flags: c_int) -> c_int, |call| open_within(call, OpenCall::Openpt) }
opens! { GETPT, c"getpt", fn getpt() -> c_int, |call| open_within(call, OpenCall::Openpt) }
opens! { OPENPTY, c"openpty",
fn openpty(master: *mut c_int, slave: *mut c_int, name: *mut c_char, modes: *const c_void, size: *const c_void) -> c_int,
|call| open_pair(call, master, slave) }
opens! { FORKPTY, c"forkpty",
fn forkpty(master: *mut c_int, name: *mut c_char, modes: *const c_void, size: *const c_void) -> c_int,
|call| fork(call, master) }

#[inline]
fn open_pair(call: impl Fn() -> c_int, master: *mut c_int, slave: *mut c_int) -> c_int {
    let since = now();
    let result = retry_when_full(call);
    if result == 0 {
        // SAFETY: the call succeeded, so it wrote the number.
        born_within(unsafe { master.read() }, OpenCall::Openpty, since);
        // SAFETY: as above.
        born_within(unsafe { slave.read() }, OpenCall::Openpty, since);
    }
    result
}

#[inline]
fn fork(call: impl Fn() -> c_int, master: *mut c_int) -> c_int {
    let since = now();
    let result = retry_when_full(call);
    // In the child it is already closed.
    if result > 0 {
        // SAFETY: the call succeeded, so it wrote the number.
        born_within(unsafe { master.read() }, OpenCall::Openpty, since);
    }
    started(result)
}
