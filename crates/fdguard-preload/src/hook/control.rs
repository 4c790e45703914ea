//! `fcntl` and `lockf`: copies of descriptors, and locks.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::c_int;

use fdguard_wire::How;

use super::{again, missing};
use crate::lock;
use crate::protect::answer;
use crate::real::Real;
use crate::record::born_from;

const F_DUPFD: c_int = 0;
const F_DUPFD_CLOEXEC: c_int = 1030;
const F_SETLK: c_int = 6;
const F_SETLKW: c_int = 7;
const F_UNLCK: i16 = 2;
const SEEK_SET: i16 = 0;
/// Commands of `lockf`.
const F_ULOCK: c_int = 0;
const F_LOCK: c_int = 1;
const F_TLOCK: c_int = 2;

/// `struct flock`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Flock {
    kind: i16,
    whence: i16,
    start: i64,
    length: i64,
    pid: c_int,
}

// SAFETY: the type of its manual page.
static FCNTL: Real<unsafe extern "C" fn(c_int, c_int, usize) -> c_int> =
    unsafe { Real::new(c"fcntl") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    let Some(real) = FCNTL.get() else {
        return missing();
    };
    if answer::is_gone(fd) {
        return answer::refuse();
    }
    // SAFETY: the caller's own arguments.
    let result = again(|| unsafe { real(fd, command, argument) });
    // SAFETY: the same arguments, after the kernel took them.
    unsafe { controlled(fd, command, argument, result) };
    result
}

// SAFETY: the type of its manual page.
static FCNTL64: Real<unsafe extern "C" fn(c_int, c_int, usize) -> c_int> =
    unsafe { Real::new(c"fcntl64") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    let Some(real) = FCNTL64.get() else {
        return missing();
    };
    if answer::is_gone(fd) {
        return answer::refuse();
    }
    // SAFETY: the caller's own arguments.
    let result = again(|| unsafe { real(fd, command, argument) });
    // SAFETY: the same arguments, after the kernel took them.
    unsafe { controlled(fd, command, argument, result) };
    result
}

/// # Safety
/// The arguments and the result of a call that was made.
unsafe fn controlled(fd: c_int, command: c_int, argument: usize, result: c_int) {
    match command {
        F_DUPFD | F_DUPFD_CLOEXEC => {
            born_from(result, How::Fcntl, fd);
        }
        F_SETLK | F_SETLKW if result == 0 => {
            // SAFETY: the kernel has read a lock from there.
            let lock = unsafe { (argument as *const Flock).read() };
            locked(fd, lock);
        }
        _ => {}
    }
}

fn locked(fd: c_int, flock: Flock) {
    let Ok(fd) = u32::try_from(fd) else {
        return;
    };
    let is_taken = flock.kind != F_UNLCK;
    // From another beginning than that of the file the range is not known: then it is all of it.
    let start = u64::try_from(flock.start).ok();
    let start = start.filter(|_| flock.whence == SEEK_SET && flock.length >= 0);
    let range = start.map(|start| match flock.length.unsigned_abs() {
        0 => [start, u64::MAX],
        length => [start, start.saturating_add(length)],
    });
    lock::changed(fd, range, is_taken);
}

// SAFETY: the type of its manual page.
static LOCKF: Real<unsafe extern "C" fn(c_int, c_int, i64) -> c_int> =
    unsafe { Real::new(c"lockf") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn lockf(fd: c_int, command: c_int, length: i64) -> c_int {
    let Some(real) = LOCKF.get() else {
        return missing();
    };
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(fd, command, length) };
    placed(fd, command, result);
    result
}

// SAFETY: the type of its manual page.
static LOCKF64: Real<unsafe extern "C" fn(c_int, c_int, i64) -> c_int> =
    unsafe { Real::new(c"lockf64") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn lockf64(fd: c_int, command: c_int, length: i64) -> c_int {
    let Some(real) = LOCKF64.get() else {
        return missing();
    };
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(fd, command, length) };
    placed(fd, command, result);
    result
}

/// `lockf` counts from the position, which is not asked for: all of the file stands for the part.
fn placed(fd: c_int, command: c_int, result: c_int) {
    let Ok(fd) = u32::try_from(fd) else {
        return;
    };
    match command {
        F_LOCK | F_TLOCK if result == 0 => lock::changed(fd, None, true),
        F_ULOCK if result == 0 => lock::changed(fd, None, false),
        _ => {}
    }
}
