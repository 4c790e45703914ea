//! A close by one thread while another is inside a call on the same socket: the connection is ended now, which wakes the other, and
//! the number is given up when that one comes out.

use core::ffi::c_int;
use core::sync::atomic::{Ordering, fence};

use super::number::{self, Age, Phase};
use super::{grave, kernel};
use crate::record::Ending;
use crate::seat;

/// Puts the close off until who is inside comes out, if somebody is.
pub(super) fn put_off(fd: c_int, age: Age, ending: &Ending) -> bool {
    if !ending.is_under_a_call() || !number::step(fd, age, Phase::Closing, Phase::PutOff) {
        return false;
    }
    // In the ring before anybody wakes up: should its owner never come out, it is closed with the oldest graves.
    grave::dig(fd, age);
    // From here on who comes out closes it, and who begins a call is refused.
    if !kernel::shut(fd, kernel::is_pipe_signal_deadly()) {
        // No socket: nobody can be woken, and the number is kept at once.
        finish(fd);
    }
    true
}

/// The owner may have come out while the close was put off.
pub(super) fn look_again(fd: c_int) {
    fence(Ordering::SeqCst);
    if !seat::is_inside(fd.unsigned_abs()) {
        finish(fd);
    }
}

/// A thread came out of a call on this number.
#[inline]
pub(crate) fn came_out(fd: c_int) {
    if super::is_on() {
        fence(Ordering::SeqCst);
        if number::phase(fd) == Phase::PutOff && crate::owner::is_here() {
            finish(fd);
        }
    }
}

/// Does the close that was put off; once, whoever comes first.
#[cold]
fn finish(fd: c_int) {
    let (phase, age) = number::state(fd);
    if phase != Phase::PutOff || !number::step(fd, age, phase, Phase::Closing) {
        return;
    }
    if !grave::bury_late(fd, age) {
        kernel::close(fd);
        number::step(fd, age, Phase::Closing, Phase::Free);
    }
}
