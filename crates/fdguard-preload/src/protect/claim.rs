//! Calls that use numbers chosen by the program: `dup2` and the like, and ranges that are closed at
//! once.

use core::ffi::c_int;

use super::number;
use super::quarantine::{self, Loan};
use super::{kernel, placeholder};
use crate::owner;

/// A number that is about to be given to something else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    fd: c_int,
    loan: Option<Loan>,
}

/// Frees this number for a call that gives it to something else.
pub(crate) fn claim(fd: c_int) -> Claim {
    let mut taken = Claim { fd, loan: None };
    if super::is_on() && owner::is_here() {
        if placeholder::is_it(fd) {
            placeholder::make_way(fd);
        }
        taken.loan = quarantine::lend(fd);
    }
    taken
}

impl Claim {
    pub(crate) fn over(self, has_failed: bool) {
        match self.loan {
            Some(loan) if has_failed => quarantine::take_back(self.fd, loan),
            _ if has_failed => {}
            _ if super::is_on() && owner::is_here() => number::forget(self.fd),
            _ => {}
        }
    }
}

/// A whole range is about to be closed: gives up the quarantined numbers in it.
pub(crate) fn sweep(first: u32, last: u32) {
    if !super::is_on() || !owner::is_here() {
        return;
    }
    let end = last.saturating_add(1).min(number::used().unsigned_abs());
    for fd in first..end {
        let Ok(fd) = c_int::try_from(fd) else {
            return;
        };
        if quarantine::lend(fd).is_some() {
            number::forget(fd);
        }
    }
}

/// Closes a range for the program, except for the original placeholder; `None` if that is not in
/// the range.
pub(crate) fn cover(first: u32, last: u32, flags: u32) -> Option<bool> {
    let stone = placeholder::number();
    let number = u32::try_from(stone).ok()?;
    if !super::is_on() || !(first..=last).contains(&number) || !owner::is_here() {
        return None;
    }
    let low = first >= number || kernel::close_range(first, number - 1, flags);
    let high = last <= number || kernel::close_range(number + 1, last, flags);
    Some(low && high)
}
