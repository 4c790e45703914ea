//! System calls of protection, made without the C library. Errors are negative, as the kernel
//! returns them.

#![expect(unsafe_code, reason = "the system call instruction")]

use core::ffi::c_int;

use crate::real::Real;
use crate::sys::call;

const CLOSE: usize = 3;
const POLL: usize = 7;
const RT_SIGACTION: usize = 13;
const SCHED_YIELD: usize = 24;
const SHUTDOWN: usize = 48;
const FCNTL: usize = 72;
const OPENAT: usize = 257;
const NEWFSTATAT: usize = 262;
const DUP3: usize = 292;
const PRLIMIT64: usize = 302;
const CLOSE_RANGE: usize = 436;

const O_PATH: usize = 0o10_000_000;
const O_CLOEXEC: usize = 0o2_000_000;
const O_NOFOLLOW: usize = 0o400_000;
const F_GETFD: usize = 1;
const F_GETFL: usize = 3;
const F_DUPFD: usize = 0;
const F_DUPFD_CLOEXEC: usize = 1030;
const SHUT_RD: usize = 0;
const SHUT_RDWR: usize = 2;
const SIGPIPE: usize = 13;
const RLIMIT_NOFILE: usize = 7;
/// No directory descriptor: relative paths start at the working directory.
const AT_FDCWD: c_int = -100;

const ENOTCONN: isize = -107;

fn number(fd: c_int) -> usize {
    usize::try_from(fd).unwrap_or(usize::MAX)
}

/// `AT_FDCWD` is negative, so its sign must be extended.
fn dir_word(dir: c_int) -> usize {
    (dir as isize).cast_unsigned()
}

/// Opens the original placeholder: a device without content, opened with `O_PATH` so that it can be
/// neither read nor written. A flag that has no effect on it identifies it from outside as
/// fdguard's.
pub(super) fn open_stone() -> Option<c_int> {
    let path = c"/dev/null".as_ptr() as usize;
    let dir = dir_word(AT_FDCWD);
    let flags = O_PATH | O_CLOEXEC | O_NOFOLLOW;
    // SAFETY: the path is a static C string.
    let fd = unsafe { call(OPENAT, [dir, path, flags, 0, 0, 0]) };
    c_int::try_from(fd).ok().filter(|fd| *fd >= 0)
}

/// Replaces whatever has the number `to` with `from`, in one step.
pub(super) fn replace(from: c_int, to: c_int) -> bool {
    // SAFETY: callers own `from`, and intend to close `to`.
    let done = unsafe { call(DUP3, [number(from), number(to), O_CLOEXEC, 0, 0, 0]) };
    done >= 0
}

/// Duplicates a descriptor to a free number from `least` on.
pub(super) fn copy(fd: c_int, least: c_int, is_cloexec: bool) -> Option<c_int> {
    let how = if is_cloexec { F_DUPFD_CLOEXEC } else { F_DUPFD };
    // SAFETY: returns a number that is not in use yet.
    let copy = unsafe { call(FCNTL, [number(fd), how, number(least), 0, 0, 0]) };
    c_int::try_from(copy).ok().filter(|copy| *copy >= 0)
}

/// Really closes a number.
pub(super) fn close(fd: c_int) {
    // SAFETY: callers pass a placeholder, or a number that its owner asked to close.
    let _ = unsafe { call(CLOSE, [number(fd), 0, 0, 0, 0, 0]) };
}

/// Closes a range; returns whether the kernel did.
pub(super) fn close_range(first: u32, last: u32, flags: u32) -> bool {
    let (first, last, flags) = (first as usize, last as usize, flags as usize);
    // SAFETY: the program requested it, or they are placeholders.
    let done = unsafe { call(CLOSE_RANGE, [first, last, flags, 0, 0, 0]) };
    done == 0
}

/// Closes these placeholders.
pub(super) fn close_all(first: c_int, last: c_int) {
    if first != last && close_range(first.unsigned_abs(), last.unsigned_abs(), 0) {
        return;
    }
    for fd in first..=last {
        close(fd);
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct PollRequest {
    fd: c_int,
    events: i16,
    answers: i16,
}

/// Which of these numbers, at most 16, are placeholders or not open: neither can be waited for. One
/// bit each.
pub(super) fn dead(fds: impl Iterator<Item = c_int>) -> u32 {
    const MOST: usize = 16;
    const POLLNVAL: i16 = 32;
    let mut list = [PollRequest {
        fd: -1,
        events: 0,
        answers: 0,
    }; MOST];
    let mut used = 0;
    for (place, fd) in list.iter_mut().zip(fds) {
        place.fd = fd;
        used += 1;
    }
    if used == 0 {
        return 0;
    }
    // SAFETY: the kernel reads and writes `used` entries, and does not wait.
    let done = unsafe { call(POLL, [list.as_mut_ptr() as usize, used, 0, 0, 0, 0]) };
    let mut bits = 0;
    for (at, one) in list.iter().enumerate().take(used) {
        // With a very low limit the kernel rejects such a list.
        let is_dead = match done {
            0.. => one.answers & POLLNVAL != 0,
            _ => is_stone(one.fd),
        };
        bits |= u32::from(is_dead) << at;
    }
    bits
}

/// Whether this number is open.
pub(super) fn is_open(fd: c_int) -> bool {
    // SAFETY: only a query.
    unsafe { call(FCNTL, [number(fd), F_GETFD, 0, 0, 0, 0]) >= 0 }
}

/// Whether what has this number can be neither read nor written: a placeholder, as far as the
/// kernel can show.
pub(super) fn is_stone(fd: c_int) -> bool {
    // SAFETY: only a query.
    let flags = unsafe { call(FCNTL, [number(fd), F_GETFL, 0, 0, 0, 0]) };
    flags >= 0 && flags.unsigned_abs() & O_PATH != 0
}

/// Shuts a connection down and wakes the threads that wait for it; false if it is not a socket.
/// With `is_gentle` only for reading: a write to a connection that is shut down in both directions
/// raises a signal.
pub(super) fn shut(fd: c_int, is_gentle: bool) -> bool {
    let how = if is_gentle { SHUT_RD } else { SHUT_RDWR };
    // SAFETY: the program is closing it.
    let done = unsafe { call(SHUTDOWN, [number(fd), how, 0, 0, 0, 0]) };
    // An unconnected socket wakes its readers all the same.
    done == 0 || done == ENOTCONN
}

/// Whether a write to a connection that was shut down kills the program.
pub(super) fn is_pipe_signal_deadly() -> bool {
    const MASK_BYTES: usize = 8;
    // `struct sigaction` of the kernel: handler, flags, restorer, mask.
    let mut action = [1_usize; 4];
    let place = action.as_mut_ptr() as usize;
    // SAFETY: nothing is set, and the kernel writes four words.
    let done = unsafe { call(RT_SIGACTION, [SIGPIPE, 0, place, MASK_BYTES, 0, 0]) };
    done != 0 || action[0] == 0
}

/// The soft limit: all numbers are below it.
pub(super) fn soft_limit() -> u32 {
    let mut limits = [0_u64; 2];
    let place = limits.as_mut_ptr() as usize;
    // SAFETY: the kernel writes two words, which is what was passed.
    let done = unsafe { call(PRLIMIT64, [0, RLIMIT_NOFILE, 0, place, 0, 0]) };
    let soft = if done == 0 { limits[0] } else { 0 };
    u32::try_from(soft).unwrap_or(u32::MAX)
}

/// Device and inode of the file at a path; `None` if there is no such file. The kernel reads the
/// path.
pub(super) fn file_at(dir: c_int, path: usize) -> Option<(u64, u64)> {
    let mut stat = [0_u64; 18];
    let place = stat.as_mut_ptr() as usize;
    // SAFETY: the kernel checks the path itself and writes 144 bytes, the size of `stat`.
    let done = unsafe { call(NEWFSTATAT, [dir_word(dir), path, place, 0, 0, 0]) };
    (done == 0).then_some((stat[0], stat[1]))
}

/// Yields to other threads.
pub(super) fn give_way() {
    // SAFETY: takes nothing and touches no memory.
    let _ = unsafe { call(SCHED_YIELD, [0; 6]) };
}

// SAFETY: the type matches the manual page.
static TESTCANCEL: Real<unsafe extern "C" fn()> = unsafe { Real::new(c"pthread_testcancel") };
// SAFETY: the type matches the manual page.
static ABORT: Real<unsafe extern "C" fn() -> !> = unsafe { Real::new(c"abort") };

/// `close` is a cancellation point, but the replacement for it is not.
pub(super) fn let_cancel() {
    if let Some(test) = TESTCANCEL.get() {
        // SAFETY: nothing is held; the C library's own `close` can be left in the same way.
        unsafe { test() };
    }
}

/// Ends the program like `abort`.
pub(super) fn abort() -> ! {
    match ABORT.get() {
        // SAFETY: may be called at any time.
        Some(abort) => unsafe { abort() },
        None => crate::sys::abort(),
    }
}
