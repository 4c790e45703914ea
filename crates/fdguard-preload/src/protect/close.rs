//! A close under protection.

use core::ffi::c_int;

use super::number::{self, Age, Phase};
use super::{EBADF, answer, kernel, placeholder, quarantine, stranger};
use crate::record::{self, Ending, PreventedHarm};
use crate::{errno, inflight, owner};

/// The outcome of a close.
pub(crate) enum Outcome {
    /// Not protected: close as usual.
    Unprotected,
    /// It was closed, or not; recorded, and `errno` set.
    Done(c_int),
}

/// Closes a number.
pub(crate) fn close(fd: c_int) -> Outcome {
    if !super::is_on() || !number::is_ours(fd) || !owner::is_here() {
        return Outcome::Unprotected;
    }
    kernel::let_cancel();
    if placeholder::is_it(fd) {
        errno::store(EBADF);
        return Outcome::Done(-1);
    }
    placeholder::erect_again();
    answer::settle_suspect(Some(fd));
    let is_row = inflight::is_row(fd);
    let Some(age) = number::claim(fd) else {
        return Outcome::Done(refuse(fd, is_row));
    };
    let ending = record::ending(fd);
    if !ending.was_known() && !kernel::is_open(fd) {
        number::step(fd, age, Phase::Closing, Phase::Free);
        errno::store(EBADF);
        record::ended(fd, ending, -1);
        return Outcome::Done(-1);
    }
    Outcome::Done(end(fd, age, ending))
}

fn end(fd: c_int, age: Age, ending: Ending) -> c_int {
    let is_put_off = stranger::put_off(fd, age, &ending);
    if !is_put_off && !quarantine::bury(fd, age) {
        // No placeholder is available: close as without protection.
        kernel::close(fd);
        number::step(fd, age, Phase::Closing, Phase::Free);
    }
    // A thread that is inside a call and could not be woken also keeps a number that leads nowhere.
    let prevented = ending.is_under_a_call().then_some(PreventedHarm::Stranger);
    record::ended_by(fd, ending, 0, prevented);
    if is_put_off {
        stranger::look_again(fd);
        answer::prevented();
    }
    0
}

/// It was already closed. Closing one number after the other is not a mistake about any of them, so
/// a row is not counted.
fn refuse(fd: c_int, is_row: bool) -> c_int {
    let ending = record::ending(fd);
    errno::store(EBADF);
    let prevented = (!is_row).then_some(PreventedHarm::DoubleClose);
    record::ended_by(fd, ending, -1, prevented);
    if !is_row {
        answer::suspect(fd);
    }
    errno::store(EBADF);
    -1
}

/// A stream or directory stream is about to be closed, with its number, by the C library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    fd: c_int,
    age: Option<Age>,
    /// Whether the number was already closed underneath the stream.
    was_closed: bool,
}

/// Before the call.
pub(crate) fn stream(fd: c_int) -> Stream {
    let mut stream = Stream {
        fd,
        age: None,
        was_closed: false,
    };
    if !super::is_on() || !number::is_ours(fd) || !owner::is_here() {
        return stream;
    }
    if let Some((age, _)) = quarantine::lend(fd) {
        stream.age = Some(age);
        stream.was_closed = true;
    } else if let Some(age) = number::claim(fd) {
        number::step(fd, age, Phase::Closing, Phase::Lent);
        stream.age = Some(age);
    }
    stream
}

impl Stream {
    /// Whether the number underneath it was already closed.
    pub(crate) fn was_closed(self) -> bool {
        self.was_closed
    }

    /// After the call: takes the number back, unless it is already in use again.
    pub(crate) fn over(self) {
        if let Some(age) = self.age {
            quarantine::occupy(self.fd, age);
        }
    }

    /// After a call that returned the number again.
    pub(crate) fn reused(self) {
        if self.age.is_some() {
            number::forget(self.fd);
        }
    }
}

/// The number underneath a stream that was just closed had already been closed: the C library
/// closed a placeholder.
pub(crate) fn closed_before(fd: c_int, ending: Ending) -> c_int {
    errno::store(EBADF);
    record::ended_by(fd, ending, -1, Some(PreventedHarm::DoubleClose));
    answer::prevented();
    errno::store(EBADF);
    -1
}
