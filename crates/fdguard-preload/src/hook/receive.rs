//! Descriptors received in messages.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_uint, c_void};

use fdguard_wire::{FdCall, OpenCall};

use super::missing;
use crate::call;
use crate::protect::answer;
use crate::real::Real;
use crate::record::born;

const SOL_SOCKET: c_int = 1;
const SCM_RIGHTS: c_int = 1;
/// More than the kernel passes in one message.
const MOST: usize = 256;

/// `struct msghdr`.
#[repr(C)]
struct Message {
    name: *mut c_void,
    name_length: c_uint,
    parts: *mut c_void,
    parts_count: usize,
    control: *mut u8,
    control_length: usize,
    flags: c_int,
}

/// `struct cmsghdr`; its data follows, and the next one starts at a multiple of eight.
#[repr(C)]
#[derive(Clone, Copy)]
struct Control {
    length: usize,
    level: c_int,
    kind: c_int,
}

// SAFETY: the type matches the manual page.
static RECVMSG: Real<unsafe extern "C" fn(c_int, *mut Message, c_int) -> isize> =
    unsafe { Real::new(c"recvmsg") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn recvmsg(fd: c_int, message: *mut Message, flags: c_int) -> isize {
    let Some(real) = RECVMSG.get() else {
        return missing() as isize;
    };
    let call = call::enter(fd, FdCall::Recv);
    if answer::is_put_off(fd) {
        call.refuse();
        return -1;
    }
    // SAFETY: passes on the caller's arguments.
    let result = unsafe { real(fd, message, flags) };
    call.end(result < 0);
    if result >= 0 {
        // SAFETY: the call succeeded, so the kernel read and wrote this message.
        let message = unsafe { message.read() };
        received(message.control, message.control_length);
    }
    result
}

/// The numbers in the control part, which the kernel just wrote.
fn received(control: *mut u8, length: usize) {
    let header = size_of::<Control>();
    let mut at = 0;
    while !control.is_null() && at + header <= length {
        let place = control.wrapping_add(at);
        // SAFETY: inside the part that the kernel filled.
        let found = unsafe { place.cast::<Control>().read_unaligned() };
        let end = at.saturating_add(found.length);
        if found.length < header || end > length {
            return;
        }
        if found.level == SOL_SOCKET && found.kind == SCM_RIGHTS {
            let numbers = ((found.length - header) / size_of::<c_int>()).min(MOST);
            let first = place.wrapping_add(header).cast::<c_int>();
            for index in 0..numbers {
                // SAFETY: as above; `numbers` fit in this entry.
                let fd = unsafe { first.wrapping_add(index).read_unaligned() };
                born(fd, OpenCall::Received);
            }
        }
        at = end.next_multiple_of(size_of::<usize>());
    }
}
