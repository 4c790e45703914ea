//! Waiting for several descriptors, for a connection, or for events.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_long, c_uint, c_void};

use fdguard_wire::{FdCall, OpenCall};

use super::{missing, on_descriptor, opens, retry_when_full};
use crate::call;
use crate::inflight::NOTED;
use crate::protect::{self, answer};
use crate::real::Real;
use crate::record::{born_from, selected};
use crate::{sys, thread};

/// Bits in the set of `select`.
const BITS: c_int = 1024;

/// `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PollEntry {
    fd: c_int,
    events: i16,
    answers: i16,
}

/// The first numbers of a poll, as the caller passed them.
///
/// # Safety
/// `list` must have `count` entries, as `poll` requires.
unsafe fn polled(list: *const PollEntry, count: u64) -> Numbers {
    let mut numbers = Numbers::none();
    for index in 0..usize::try_from(count).unwrap_or(0).min(NOTED) {
        // SAFETY: guaranteed by the caller.
        numbers.push(unsafe { list.wrapping_add(index).read() }.fd);
    }
    numbers
}

/// Whether this many bytes can be read from here: rejecting unreadable ones is the kernel's job.
fn is_there(start: usize, bytes: usize) -> bool {
    let Some(last) = start.checked_add(bytes.saturating_sub(1)) else {
        return false;
    };
    let (low, top) = thread::stack();
    let is_on_stack = start >= low && last < top;
    let is_seen = start != 0 && crate::start::is_on();
    is_seen && (is_on_stack || (sys::is_readable(start) && sys::is_readable(last)))
}

/// Some numbers.
#[derive(Clone, Copy)]
struct Numbers {
    all: [u32; NOTED],
    used: usize,
}

impl Numbers {
    fn none() -> Self {
        Self {
            all: [0; NOTED],
            used: 0,
        }
    }

    fn push(&mut self, fd: c_int) {
        if let (Ok(fd), Some(place)) = (u32::try_from(fd), self.all.get_mut(self.used)) {
            *place = fd;
            self.used += 1;
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        self.all.iter().copied().take(self.used)
    }
}

/// A function that waits on a list.
macro_rules! poll {
    ($real:ident, $name:literal, fn $function:ident($list:ident, $count:ident $(, $argument:ident: $type:ty)*)) => {
        static $real: Real<unsafe extern "C" fn(*mut PollEntry, u64 $(, $type)*) -> c_int> =
            // SAFETY: the type matches the manual page.
            unsafe { Real::new($name) };

        // SAFETY: interposed on purpose; the type matches the manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $function($list: *mut PollEntry, $count: u64 $(, $argument: $type)*) -> c_int {
            let Some(real) = $real.get() else {
                return missing();
            };
            let bytes = usize::try_from($count).unwrap_or(0).min(NOTED) * size_of::<PollEntry>();
            let numbers = if crate::inflight::is_threaded() && is_there($list as usize, bytes) {
                // SAFETY: the caller's list, which can be read.
                unsafe { polled($list, $count) }
            } else {
                Numbers::none()
            };
            let wait = call::wait(numbers.iter());
            // SAFETY: passes on the caller's arguments.
            let result = unsafe { real($list, $count $(, $argument)*) };
            wait.end();
            result
        }
    };
}

poll! { POLL, c"poll", fn poll(list, count, timeout: c_int) }
poll! { POLL_CHK, c"__poll_chk", fn __poll_chk(list, count, timeout: c_int, room: usize) }
poll! { PPOLL, c"ppoll", fn ppoll(list, count, timeout: *const c_void, mask: *const c_void) }
poll! { PPOLL_CHK, c"__ppoll_chk", fn __ppoll_chk(list, count, timeout: *const c_void, mask: *const c_void, room: usize) }

/// The first numbers of a set.
///
/// # Safety
/// The set must be unreadable, or a set as `select` requires.
unsafe fn chosen(numbers: &mut Numbers, set: *const u64, count: c_int) {
    let count = usize::try_from(count.min(BITS)).unwrap_or(0);
    if !is_there(set as usize, count.div_ceil(64) * 8) {
        return;
    }
    for word in 0..count.div_ceil(64) {
        // SAFETY: guaranteed by the caller.
        let mut bits = unsafe { set.wrapping_add(word).read() };
        while bits != 0 {
            let bit = bits.trailing_zeros();
            bits &= bits - 1;
            numbers.push(
                c_int::try_from(word * 64)
                    .unwrap_or(-1)
                    .saturating_add(bit.cast_signed()),
            );
        }
    }
}

/// Whether a number in the set is closed: the kernel reports a placeholder as ready.
///
/// # Safety
/// The set must be unreadable, or a set as `select` requires.
unsafe fn has_gone(set: *const u64, count: c_int) -> bool {
    let count = usize::try_from(count.min(BITS)).unwrap_or(0);
    if !is_there(set as usize, count.div_ceil(64) * 8) {
        return false;
    }
    (0..count.div_ceil(64)).any(|word| {
        // SAFETY: guaranteed by the caller.
        let mut bits = unsafe { set.wrapping_add(word).read() };
        let mut has_gone = false;
        while bits != 0 {
            let number = word * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let fd = c_int::try_from(number).unwrap_or(-1);
            has_gone |= number < count && answer::is_gone(fd);
        }
        has_gone
    })
}

/// A function that waits on sets.
macro_rules! select {
    ($real:ident, $name:literal, fn $function:ident($($argument:ident: $type:ty),*)) => {
        static $real: Real<unsafe extern "C" fn(c_int, *mut u64, *mut u64, *mut u64 $(, $type)*) -> c_int> =
            // SAFETY: the type matches the manual page.
            unsafe { Real::new($name) };

        // SAFETY: interposed on purpose; the type matches the manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        unsafe extern "C" fn $function(count: c_int, read: *mut u64, write: *mut u64, except: *mut u64 $(, $argument: $type)*) -> c_int {
            let Some(real) = $real.get() else {
                return missing();
            };
            if count > BITS {
                selected(count.cast_unsigned());
            }
            let mut numbers = Numbers::none();
            if protect::is_on() {
                for set in [read, write, except] {
                    // SAFETY: the caller's sets, which the kernel is about to read.
                    if unsafe { has_gone(set, count) } {
                        return answer::refuse();
                    }
                }
            }
            if crate::inflight::is_threaded() {
                for set in [read, write, except] {
                    // SAFETY: the caller's sets, which the kernel is about to read.
                    unsafe { chosen(&mut numbers, set, count) };
                }
            }
            let wait = call::wait(numbers.iter());
            // SAFETY: passes on the caller's arguments.
            let result = unsafe { real(count, read, write, except $(, $argument)*) };
            wait.end();
            result
        }
    };
}

select! { SELECT, c"select", fn select(timeout: *mut c_void) }
select! { PSELECT, c"pselect", fn pselect(timeout: *const c_void, mask: *const c_void) }

// SAFETY: the type matches the C library: it returns the word of a number's bit, or ends the
// program.
static FDELT_CHK: Real<unsafe extern "C" fn(c_long) -> c_long> =
    unsafe { Real::new(c"__fdelt_chk") };

/// Fortified programs call it for every bit that they set.
// SAFETY: interposed on purpose; the type matches the C library.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn __fdelt_chk(number: c_long) -> c_long {
    if number >= c_long::from(BITS) {
        // The next call ends the program.
        selected(u32::try_from(number.saturating_add(1)).unwrap_or(u32::MAX));
    }
    let Some(real) = FDELT_CHK.get() else {
        return number / 64;
    };
    // SAFETY: passes on the caller's argument.
    unsafe { real(number) }
}

/// A wait for at most `most` events: some programs have room for as many numbers.
fn waits(most: c_int) -> FdCall {
    protect::has_places(most);
    FdCall::EpollWait
}

on_descriptor! { EPOLL_WAIT, c"epoll_wait", waits(most),
fn epoll_wait(fd: c_int, events: *mut c_void, most: c_int, timeout: c_int) -> c_int }
on_descriptor! { EPOLL_PWAIT, c"epoll_pwait", waits(most),
fn epoll_pwait(fd: c_int, events: *mut c_void, most: c_int, timeout: c_int, mask: *const c_void) -> c_int }
on_descriptor! { EPOLL_PWAIT2, c"epoll_pwait2", waits(most),
fn epoll_pwait2(fd: c_int, events: *mut c_void, most: c_int, timeout: *const c_void, mask: *const c_void) -> c_int }

opens! { ACCEPT, c"accept",
fn accept(fd: c_int, address: *mut c_void, length: *mut c_uint) -> c_int, |call| connection(call, fd) }
opens! { ACCEPT4, c"accept4",
fn accept4(fd: c_int, address: *mut c_void, length: *mut c_uint, flags: c_int) -> c_int, |call| connection(call, fd) }

#[inline]
fn connection(accept: impl Fn() -> c_int, fd: c_int) -> c_int {
    let call = call::enter(fd, FdCall::Accept);
    if answer::is_put_off(fd) {
        call.refuse();
        return -1;
    }
    let result = retry_when_full(accept);
    call.end(result < 0);
    born_from(result, OpenCall::Accept, fd)
}
