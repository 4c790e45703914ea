//! Calls that are repeated when protection has taken the last descriptor numbers.

use super::shape::Outcome;
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
