//! Closing.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_uint, c_void};

use super::spawn::child_of_stream;
use super::stream::{number_of_directory, number_of_stream};
use super::{apart, missing};
use crate::children::reaped;
use crate::protect;
use crate::protect::close::{self, Outcome};
use crate::real::Real;
use crate::record::{ended, ending, range_ending};

const CLOSE_RANGE_CLOEXEC: u32 = 4;

// SAFETY: the type matches the manual page.
static CLOSE: Real<unsafe extern "C" fn(c_int) -> c_int> = unsafe { Real::new(c"close") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn close(fd: c_int) -> c_int {
    let Some(real) = CLOSE.get() else {
        return missing();
    };
    if let Outcome::Done(result) = close::close(fd) {
        return result;
    }
    let ending = ending(fd);
    // SAFETY: passes on the caller's argument.
    let result = unsafe { real(fd) };
    ended(fd, ending, result);
    result
}

/// A function that closes the descriptor of a stream or directory stream.
macro_rules! closes {
    ($real:ident, $name:literal, $function:ident, $number:path, $child:path) => {
        static $real: Real<unsafe extern "C" fn(*mut c_void) -> c_int> =
            // SAFETY: the type matches the manual page.
            unsafe { Real::new($name) };

        // SAFETY: interposed on purpose; the type matches the manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $function(stream: *mut c_void) -> c_int {
            let Some(real) = $real.get() else {
                return missing();
            };
            let fd = $number(stream);
            let buried = close::stream(fd);
            let ending = ending(fd);
            // SAFETY: the caller's stream, which is about to be closed.
            let child = unsafe { $child(stream) };
            // SAFETY: passes on the caller's argument.
            let result = unsafe { real(stream) };
            if result != -1 {
                reaped(child);
            }
            buried.over();
            if buried.was_closed() {
                return close::closed_before(fd, ending);
            }
            ended(fd, ending, result);
            result
        }
    };
}

/// No child is waited for when this is closed.
///
/// # Safety
/// No requirement; unsafe only to match the type of its counterparts.
unsafe fn nobody(_: *const c_void) -> c_int {
    0
}

closes! { FCLOSE, c"fclose", fclose, number_of_stream, nobody }
closes! { PCLOSE, c"pclose", pclose, number_of_stream, child_of_stream }
closes! { CLOSEDIR, c"closedir", closedir, number_of_directory, nobody }

// SAFETY: the type matches the manual page.
static CLOSE_RANGE: Real<unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int> =
    unsafe { Real::new(c"close_range") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let Some(real) = CLOSE_RANGE.get() else {
        return missing();
    };
    if range(first, last, flags.cast_unsigned()) {
        return 0;
    }
    // SAFETY: passes on the caller's arguments.
    unsafe { real(first, last, flags) }
}

/// A call of `close_range` is about to be made; returns whether protection has made it.
pub(super) fn range(first: u32, last: u32, flags: u32) -> bool {
    apart::closes_range(first, last, flags);
    if first > last || flags & CLOSE_RANGE_CLOEXEC != 0 {
        return false;
    }
    range_ending(first, last);
    protect::sweep(first, last);
    protect::cover(first, last, flags) == Some(true)
}

// SAFETY: the type matches the manual page.
static CLOSEFROM: Real<unsafe extern "C" fn(c_int)> = unsafe { Real::new(c"closefrom") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn closefrom(first: c_int) {
    let Some(real) = CLOSEFROM.get() else {
        return;
    };
    let number = first.max(0).cast_unsigned();
    range_ending(number, u32::MAX);
    protect::sweep(number, u32::MAX);
    if let Some(true) = protect::cover(number, u32::MAX, 0) {
        return;
    }
    // SAFETY: passes on the caller's argument.
    unsafe { real(first) };
}
