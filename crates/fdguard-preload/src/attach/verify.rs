//! Checks that the hooks call the real functions and return their results, before anything leads to
//! them. A hook that did not find its function would fail every call of the program.

#![expect(unsafe_code, reason = "calls hooks as the program would")]

use core::ffi::c_int;

use crate::errno;
use crate::hook::{close::close, control::fcntl, file::open, syscall};
use crate::sys;

const O_DIRECTORY_CLOEXEC: c_int = 0o2_200_000;
const F_GETFD: c_int = 1;
const CLOEXEC: c_int = 1;
const EBADF: c_int = 9;

/// Whether all of them do. Nothing is recorded yet.
pub(super) fn is_right() -> bool {
    fails_as_expected() && (opens_and_closes() || is_table_full())
}

fn fails_as_expected() -> bool {
    // SAFETY: an invalid number touches nothing.
    let closed = unsafe { close(-1) };
    let is_closed_right = closed == -1 && errno::load() == EBADF;
    // SAFETY: as above.
    let asked = unsafe { fcntl(-1, F_GETFD, 0) };
    let is_asked_right = asked == -1 && errno::load() == EBADF;
    is_closed_right && is_asked_right && syscall::is_found()
}

fn opens_and_closes() -> bool {
    // SAFETY: a C string.
    let fd = unsafe { open(c"/".as_ptr(), O_DIRECTORY_CLOEXEC, 0) };
    let Ok(number) = u32::try_from(fd) else {
        return false;
    };
    let is_opened = sys::is_open(number);
    // SAFETY: a query about the descriptor that was just opened.
    let flags = unsafe { fcntl(fd, F_GETFD, 0) };
    // SAFETY: the descriptor that was just opened, which no other code knows.
    let closed = unsafe { close(fd) };
    is_opened && flags & CLOEXEC != 0 && closed == 0
}

/// A program without a free number cannot open anything, with or without hooks.
fn is_table_full() -> bool {
    const ERRORS: [c_int; 2] = [23, 24];
    let error = errno::load();
    match sys::open_to_read(c"/") {
        Ok(fd) => {
            sys::close(fd);
            false
        }
        Err(real) => sys::is_full(real) && ERRORS.contains(&error),
    }
}
