//! Calls that return new numbers. They are repeated when protection has taken the last ones.

use core::ffi::c_int;

use fdguard_wire::OpenCall;

use super::shape::Outcome;
use crate::record::{born, born_within, now};
use crate::{errno, protect};

/// How often a call that found the table full is repeated: protection gives up its quarantined
/// numbers first, then its placeholder.
const TRIES: u32 = 3;

/// A call that returns new numbers. If none is left because of protection, protection gives numbers
/// up and the call is repeated.
#[inline]
pub(super) fn retry_when_full<T: Outcome>(call: impl Fn() -> T) -> T {
    if !protect::is_on() {
        return call();
    }
    let error = errno::load();
    let mut result = call();
    for _ in 0..TRIES {
        if !result.has_failed() || !protect::makes_room() {
            break;
        }
        errno::store(error);
        result = call();
    }
    result
}

/// A call that opens one descriptor and returns its number.
#[inline]
pub(super) fn open(call: impl Fn() -> c_int, how: OpenCall) -> c_int {
    born(retry_when_full(call), how)
}

/// The same for a call that may open it through another hook.
#[inline]
pub(super) fn open_within(call: impl Fn() -> c_int, how: OpenCall) -> c_int {
    let since = now();
    let fd = retry_when_full(call);
    born_within(fd, how, since);
    fd
}
