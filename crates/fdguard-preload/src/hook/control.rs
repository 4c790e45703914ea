//! `fcntl` and `lockf`: duplicated descriptors, and locks.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::c_int;

use fdguard_wire::OpenCall;

use super::{missing, opens, retry_when_full};
use crate::lock::{self, Change, Outcome};
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

opens! { FCNTL, c"fcntl",
fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int, |call| control(call, fd, command, argument) }
opens! { FCNTL64, c"fcntl64",
fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int, |call| control(call, fd, command, argument) }

#[inline]
fn control(call: impl Fn() -> c_int, fd: c_int, command: c_int, argument: usize) -> c_int {
    if answer::is_gone(fd) {
        return answer::refuse();
    }
    let change = begin(fd, matches!(command, F_SETLK | F_SETLKW));
    let result = retry_when_full(call);
    // SAFETY: the arguments of the call that was just made.
    unsafe { controlled((fd, command, argument), change, result) };
    result
}

/// What is known of a lock before the call.
fn begin(fd: c_int, is_lock: bool) -> Option<Change> {
    let fd = u32::try_from(fd).ok().filter(|_| is_lock)?;
    lock::changing(fd)
}

/// # Safety
/// The arguments and the result of a call that was made.
unsafe fn controlled(
    (fd, command, argument): (c_int, c_int, usize),
    change: Option<Change>,
    result: c_int,
) {
    if matches!(command, F_DUPFD | F_DUPFD_CLOEXEC) {
        born_from(result, OpenCall::Fcntl, fd);
    }
    let Some(change) = change else {
        return;
    };
    let outcome = if result == 0 {
        // SAFETY: the kernel has read a lock from there.
        outcome(unsafe { (argument as *const Flock).read() })
    } else {
        Outcome::Failed
    };
    lock::changed(change, outcome);
}

fn outcome(flock: Flock) -> Outcome {
    // If the range does not start from the beginning of the file, it is unknown: assume the whole
    // file.
    let start = u64::try_from(flock.start).ok();
    let start = start.filter(|_| flock.whence == SEEK_SET && flock.length >= 0);
    let range = start.map(|start| match flock.length.unsigned_abs() {
        0 => [start, u64::MAX],
        length => [start, start.saturating_add(length)],
    });
    if flock.kind == F_UNLCK {
        Outcome::Unlocked(range)
    } else {
        Outcome::Locked(range)
    }
}

// SAFETY: the type matches the manual page.
static LOCKF: Real<unsafe extern "C" fn(c_int, c_int, i64) -> c_int> =
    unsafe { Real::new(c"lockf") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn lockf(fd: c_int, command: c_int, length: i64) -> c_int {
    let Some(real) = LOCKF.get() else {
        return missing();
    };
    let change = begin(fd, matches!(command, F_LOCK | F_TLOCK | F_ULOCK));
    // SAFETY: passes on the caller's arguments.
    let result = unsafe { real(fd, command, length) };
    placed(change, command, result);
    result
}

// SAFETY: the type matches the manual page.
static LOCKF64: Real<unsafe extern "C" fn(c_int, c_int, i64) -> c_int> =
    unsafe { Real::new(c"lockf64") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn lockf64(fd: c_int, command: c_int, length: i64) -> c_int {
    let Some(real) = LOCKF64.get() else {
        return missing();
    };
    let change = begin(fd, matches!(command, F_LOCK | F_TLOCK | F_ULOCK));
    // SAFETY: passes on the caller's arguments.
    let result = unsafe { real(fd, command, length) };
    placed(change, command, result);
    result
}

/// `lockf` counts from the current position, which is not queried: assume the whole file.
fn placed(change: Option<Change>, command: c_int, result: c_int) {
    let Some(change) = change else {
        return;
    };
    let outcome = match command {
        _ if result != 0 => Outcome::Failed,
        F_ULOCK => Outcome::Unlocked(None),
        _ => Outcome::Locked(None),
    };
    lock::changed(change, outcome);
}
