//! `prctl` and other calls that install a seccomp filter. Recording stops if the filter would kill
//! the program for the library's own calls.

#![expect(
    unsafe_code,
    reason = "stands in for a function of the C library, and reads a filter"
)]

use core::ffi::{c_int, c_long};

use super::missing;
use crate::filter::{self, BEGINNING, Instruction, MOST, PROTECTING, RECORDING};
use crate::real::Real;
use crate::{protect, start, sys};

type Prctl = unsafe extern "C" fn(c_int, c_long, c_long, c_long, c_long) -> c_int;
// SAFETY: the type matches the manual page, with the largest number of arguments.
static PRCTL: Real<Prctl> = unsafe { Real::new(c"prctl") };

const PR_SET_SECCOMP: c_long = 22;
const MODE_STRICT: c_long = 1;
const MODE_FILTER: c_long = 2;
/// The same modes as operations of `seccomp`.
const SET_MODE_STRICT: c_long = 0;
const SET_MODE_FILTER: c_long = 1;

const SYS_PRCTL: c_long = 157;
const SYS_SECCOMP: c_long = 317;

/// `struct sock_fprog`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Program {
    length: u16,
    start: *const Instruction,
}

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn prctl(what: c_int, a: c_long, b: c_long, c: c_long, d: c_long) -> c_int {
    let Some(real) = PRCTL.get() else {
        return missing();
    };
    let before = restrain(SYS_PRCTL, [c_long::from(what), a, b]);
    // SAFETY: passes on the caller's arguments.
    let result = unsafe { real(what, a, b, c, d) };
    if result == -1 {
        before.restore();
    }
    result
}

/// What was allowed before.
#[must_use]
pub(super) struct Before(Option<start::AllowedCalls>);

impl Before {
    /// The filter was not installed.
    pub(super) fn restore(self) {
        if let Some(allowed) = self.0 {
            start::allow(allowed);
        }
    }
}

/// Inspects a system call that is about to be made; if it installs a filter, the library obeys the
/// filter from now on.
pub(super) fn restrain(number: c_long, [a, b, c]: [c_long; 3]) -> Before {
    let is_strict = matches!(
        (number, a, b),
        (SYS_PRCTL, PR_SET_SECCOMP, MODE_STRICT) | (SYS_SECCOMP, SET_MODE_STRICT, _)
    );
    let is_filter = matches!(
        (number, a, b),
        (SYS_PRCTL, PR_SET_SECCOMP, MODE_FILTER) | (SYS_SECCOMP, SET_MODE_FILTER, _)
    );
    if !start::is_on() || !(is_strict || is_filter) {
        return Before(None);
    }
    let mut allowed = start::AllowedCalls {
        recording: false,
        beginning: false,
    };
    let mut bears_protection = false;
    if is_filter
        && let Ok(address) = usize::try_from(c)
        && let Some(filter) = read(address)
    {
        allowed.recording = filter::bears(filter, &RECORDING);
        allowed.beginning = allowed.recording && filter::bears(filter, &BEGINNING);
        bears_protection = allowed.recording && filter::bears(filter, &PROTECTING);
    }
    if !bears_protection {
        // Permanently, even if the kernel then rejects the filter: released numbers cannot be
        // reclaimed.
        protect::stop();
    }
    Before(Some(start::restrict(allowed)))
}

/// The filter at an address, if it can be read.
fn read(address: usize) -> Option<&'static [Instruction]> {
    let last = address.checked_add(size_of::<Program>() - 1)?;
    if !sys::is_readable(address) || !sys::is_readable(last) {
        return None;
    }
    // SAFETY: the kernel just read there.
    let program = unsafe { (address as *const Program).read_unaligned() };
    let (start, length) = (program.start as usize, usize::from(program.length));
    if length == 0 || length > MOST || start & 3 != 0 {
        return None;
    }
    let end = start.checked_add(length * size_of::<Instruction>())?;
    let mut page = start;
    while page < end {
        if !sys::is_readable(page) {
            return None;
        }
        page = (page | 4095).checked_add(1)?;
    }
    // SAFETY: the kernel just read every page of it, and the caller keeps it for the call that is
    // about to be made.
    Some(unsafe { core::slice::from_raw_parts(program.start, length) })
}
