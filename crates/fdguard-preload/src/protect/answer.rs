//! Calls that would succeed on a placeholder although the descriptor is closed. They fail as they
//! would without protection.

use core::ffi::c_int;

use super::number::{self, Phase};
use super::{EBADF, kernel, placeholder};
use crate::{errno, inflight, owner, sys};

/// Whether a number is closed from the program's point of view although the kernel has something
/// there.
#[inline]
pub(crate) fn is_gone(fd: c_int) -> bool {
    super::is_on() && is_closed(fd)
}

fn is_closed(fd: c_int) -> bool {
    let is_dead = matches!(
        number::phase(fd),
        Phase::Closing | Phase::Buried | Phase::PutOff
    );
    (is_dead || placeholder::is_it(fd)) && owner::is_here()
}

/// Whether it is being closed, or the close was deferred, so that the kernel would still work on
/// it.
#[inline]
pub(crate) fn is_put_off(fd: c_int) -> bool {
    super::is_on()
        && matches!(number::phase(fd), Phase::Closing | Phase::PutOff)
        && owner::is_here()
}

/// The same for the directory that a path is relative to; irrelevant for an absolute path.
pub(crate) fn is_gone_at(dir: c_int, path: *const core::ffi::c_char) -> bool {
    is_gone(dir) && !begins_at_root(path as usize)
}

fn begins_at_root(path: usize) -> bool {
    path != 0 && sys::is_readable(path) && crate::protect::reserved_range::first_byte(path) == b'/'
}

/// The result of a refused call.
pub(crate) fn refuse() -> c_int {
    errno::store(EBADF);
    -1
}

/// Something was prevented and recorded: aborts the program at the level `fatal`.
pub(crate) fn prevented() {
    if super::is_fatal() {
        kernel::abort();
    }
}

/// A second close was recorded. It may be the first of a row, which is not a mistake: the thread's
/// next call decides.
pub(super) fn suspect(fd: c_int) {
    if super::is_fatal() {
        inflight::suspect(fd);
    }
}

/// The thread continues, with a close of this number or with something else.
pub(crate) fn settle_suspect(closes: Option<c_int>) {
    if super::is_fatal()
        && let Some(before) = inflight::take_suspect()
    {
        let is_next = closes.is_some_and(|fd| fd.abs_diff(before) == 1);
        if !is_next {
            kernel::abort();
        }
    }
}
