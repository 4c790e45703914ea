//! A close while another thread is in a call on the same socket. The connection is shut down at
//! once, which wakes the other thread, and the number is released when that thread leaves its call.

use core::ffi::c_int;
use core::sync::atomic::{Ordering, fence};

use super::number::{self, Age, Phase};
use super::{kernel, quarantine};
use crate::inflight;
use crate::record::Ending;

/// Defers the close until the thread inside leaves its call, if there is one and it can be woken.
///
/// While the number is "being closed", no thread frees it, so the right connection is shut down. If
/// a woken thread continues, the library refuses its calls before the kernel sees a connection that
/// was shut down.
pub(super) fn put_off(fd: c_int, age: Age, ending: &Ending) -> bool {
    if !ending.is_under_a_call() || !kernel::shut(fd, kernel::is_pipe_signal_deadly()) {
        return false;
    }
    let is_mine = number::step(fd, age, Phase::Closing, Phase::PutOff);
    if is_mine {
        // If its owner never leaves the call, it is closed with the oldest quarantined numbers.
        quarantine::dig(fd, age);
    }
    is_mine
}

/// The owner may have left while the close was being deferred.
pub(super) fn look_again(fd: c_int) {
    fence(Ordering::SeqCst);
    if !inflight::is_inside(fd.unsigned_abs()) {
        finish(fd);
    }
}

/// A thread left a call on this number.
#[inline]
pub(crate) fn came_out(fd: c_int) {
    if super::is_on() {
        fence(Ordering::SeqCst);
        if number::phase(fd) == Phase::PutOff && crate::owner::is_here() {
            finish(fd);
        }
    }
}

/// Makes the deferred close; only the first thread to get here does.
#[cold]
fn finish(fd: c_int) {
    let (phase, age) = number::state(fd);
    if phase != Phase::PutOff || !number::step(fd, age, phase, Phase::Closing) {
        return;
    }
    // It may be in the ring already, or not yet: of two entries the second has no effect.
    if !quarantine::bury(fd, age) {
        kernel::close(fd);
        number::step(fd, age, Phase::Closing, Phase::Free);
    }
}
