//! Calls on descriptors. Most of them cost a few loads and record nothing.
//!
//! Only calls that can be evidence are recorded: the first use of a descriptor by a thread of a
//! multi-threaded program, a use that fails with EBADF or ENOTSOCK, a call whose number was closed
//! meanwhile, and data that looks like a TLS record but goes to something other than a socket.

use core::ffi::c_int;

use fdguard_wire::{EventKind, EventRecord, FdCall, OpenCall, TableMapping};

use crate::inflight::{self, InflightCall};
use crate::protect::{answer, stranger};
use crate::record::{self, PreventedHarm};
use crate::{errno, language, protect, real, stack, start, sys, thread};

const EBADF: c_int = 9;
const ENOTSOCK: c_int = 88;
/// Recorded bytes of the data written.
const TOLD: usize = 16;

/// A call on one descriptor number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    fd: c_int,
    touch: FdCall,
    entered: Option<InflightCall>,
    /// The generation of the number when the call was entered.
    turn: u32,
}

/// A call begins.
#[inline]
pub(crate) fn enter(fd: c_int, touch: FdCall) -> Call {
    answer::settle_suspect(None);
    let mut call = Call {
        fd,
        touch,
        entered: None,
        turn: 0,
    };
    if inflight::is_threaded()
        && !thread::is_apart()
        && let Ok(number) = u32::try_from(fd)
        && let Some(mapping) = start::current()
    {
        call.turn = mapping.turn(&start::GROUND, number);
        call.entered = inflight::enter(number, touch, call.turn);
    }
    call
}

impl Call {
    /// The call is over and wrote nothing.
    #[inline]
    pub(crate) fn end(self, has_failed: bool) {
        self.end_written(has_failed, &[]);
    }

    /// The call is over and wrote these bytes.
    #[inline]
    pub(crate) fn end_written(self, has_failed: bool, bytes: &[u8]) {
        let is_torn = self.entered.and_then(inflight::leave).is_some();
        if self.entered.is_some() {
            stranger::came_out(self.fd);
        }
        let Some(mapping) = start::current() else {
            return;
        };
        let Ok(fd) = u32::try_from(self.fd) else {
            if has_failed && errno::load() == EBADF {
                self.tell(self.fd.cast_unsigned(), EBADF, false, &[]);
            }
            return;
        };
        if has_failed {
            let error = errno::load();
            let is_missed = error == ENOTSOCK && !self.has_changed_hands(mapping, fd);
            if is_torn || error == EBADF || is_missed {
                self.fail(fd, error, is_torn);
            }
            return;
        }
        if !is_torn && self.has_changed_hands(mapping, fd) {
            return;
        }
        mapping.note_use(&start::GROUND, fd);
        if start::records_users() {
            note_user(fd);
        }
        let is_new =
            self.entered.is_some() && !inflight::claim(fd, mapping.turn(&start::GROUND, fd));
        if is_new || is_torn || is_misplaced(mapping, fd, bytes) {
            self.tell(fd, 0, is_torn, bytes);
        }
    }

    /// Whether the number was closed since the call began without the closer seeing this thread
    /// inside. Which descriptor the call worked on is then uncertain, so nothing is concluded from
    /// it.
    fn has_changed_hands(&self, mapping: &TableMapping, fd: u32) -> bool {
        self.entered.is_some() && mapping.turn(&start::GROUND, fd) != self.turn
    }

    /// The descriptor is closed from the program's point of view: the call is not made.
    #[cold]
    pub(crate) fn refuse(self) {
        errno::store(EBADF);
        self.end(true);
        errno::store(EBADF);
    }

    #[cold]
    #[inline(never)]
    fn fail(self, fd: u32, error: c_int, is_torn: bool) {
        let is_prevented = error == EBADF && answer::is_gone(self.fd);
        if !is_prevented {
            // A descriptor that is not open in this mode gives the same error.
            let is_open = error == EBADF && !start::is_filtered() && sys::is_open(fd);
            if !is_open || is_torn {
                self.tell(fd, error, is_torn, &[]);
            }
            return;
        }
        let is_probe = self.touch == FdCall::Other;
        if let Some(mapping) = start::current().filter(|_| !is_probe) {
            mapping.prevented(PreventedHarm::Use);
        }
        self.tell_as(PreventedHarm::BIT, fd, error, is_torn, &[]);
        if !is_probe {
            answer::prevented();
        }
    }

    fn tell(self, fd: u32, error: c_int, is_torn: bool, bytes: &[u8]) {
        self.tell_as(0, fd, error, is_torn, bytes);
    }

    #[cold]
    #[inline(never)]
    fn tell_as(self, bits: u8, fd: u32, error: c_int, is_torn: bool, bytes: &[u8]) {
        record::with(|mapping| {
            let torn = if is_torn { FdCall::TORN } else { 0 };
            let event = EventRecord {
                kind: EventKind::Use,
                code: self.touch as u8 | torn | bits,
                errno: u16::try_from(error).unwrap_or(0),
                tid: thread::tid(),
                ns: real::now(),
                fd,
                stack: stack::here(mapping),
                more: words(bytes),
            };
            record::tell(mapping, &event);
        });
    }
}

/// Remembers the calling stack as the last user of a number. In Python the heap says more, and a
/// stack costs more.
#[cold]
#[inline(never)]
fn note_user(fd: u32) {
    if language::is_python() {
        return;
    }
    record::with(|mapping| mapping.note_user(&start::GROUND, fd, stack::here(mapping)));
}

/// A call on several numbers. It is recorded only if one of them is closed meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    entered: Option<InflightCall>,
}

/// A wait for these numbers begins.
pub(crate) fn wait(fds: impl Iterator<Item = u32>) -> Wait {
    let is_seen = inflight::is_threaded() && !thread::is_apart() && start::is_on();
    let entered = is_seen.then(|| inflight::enter_several(fds, FdCall::Poll));
    Wait {
        entered: entered.flatten(),
    }
}

impl Wait {
    pub(crate) fn end(self) {
        let torn = self.entered.and_then(inflight::leave);
        if let Some(entered) = self.entered.filter(|_| protect::is_on()) {
            for fd in inflight::noted(entered) {
                stranger::came_out(c_int::try_from(fd).unwrap_or(-1));
            }
        }
        if let Some(fd) = torn {
            let call = Call {
                fd: c_int::try_from(fd).unwrap_or(-1),
                touch: FdCall::Poll,
                entered: None,
                turn: 0,
            };
            call.tell(fd, 0, true, &[]);
        }
    }
}

/// Whether the bytes start like a TLS record and go to something other than a socket.
fn is_misplaced(mapping: &TableMapping, fd: u32, bytes: &[u8]) -> bool {
    let [20..=23, 3, 0..=4, _, _, ..] = bytes else {
        return false;
    };
    let how = mapping
        .open_record(&start::GROUND, fd)
        .map(|birth| birth.call);
    let is_socket = matches!(
        how,
        Some(OpenCall::Socket | OpenCall::Socketpair | OpenCall::Accept)
    );
    how.is_some() && !is_socket
}

/// The first bytes as two words, padded with zeros.
fn words(bytes: &[u8]) -> [u64; 2] {
    let mut room = [0; TOLD];
    for (place, byte) in room.iter_mut().zip(bytes) {
        *place = *byte;
    }
    let (first, second) = room.split_at(TOLD / 2);
    [first, second].map(|half| u64::from_ne_bytes(half.try_into().unwrap_or_default()))
}
