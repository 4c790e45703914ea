//! Streams and directory streams, which the C library opens and closes without calling the
//! interposed functions.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_char, c_int, c_void};

use fdguard_wire::OpenCall;

use super::opens;
use super::retry::{open_within, retry_when_full};
use super::spawn::child_of_stream;
use crate::children::started;
use crate::protect::close;
use crate::real::Real;
use crate::record::{born_within, ended, ending, now};

// SAFETY: the type matches the manual page.
static FILENO: Real<unsafe extern "C" fn(*mut c_void) -> c_int> = unsafe { Real::new(c"fileno") };

// SAFETY: the type matches the manual page.
static DIRFD: Real<unsafe extern "C" fn(*mut c_void) -> c_int> = unsafe { Real::new(c"dirfd") };

/// The number of a stream, -1 if it has none.
pub(super) fn number_of_stream(stream: *mut c_void) -> c_int {
    number(&FILENO, stream)
}

/// The number of a directory stream.
pub(super) fn number_of_directory(directory: *mut c_void) -> c_int {
    number(&DIRFD, directory)
}

fn number(real: &Real<unsafe extern "C" fn(*mut c_void) -> c_int>, stream: *mut c_void) -> c_int {
    let Some(real) = real.get().filter(|_| !stream.is_null()) else {
        return -1;
    };
    let error = crate::errno::load();
    // SAFETY: a stream that the program is about to use, or just got from the C library.
    let fd = unsafe { real(stream) };
    crate::errno::store(error);
    fd
}

opens! { FOPEN, c"fopen",
fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void, |call| open_stream(call, OpenCall::Fopen) }
opens! { FOPEN64, c"fopen64",
fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void, |call| open_stream(call, OpenCall::Fopen) }
opens! { FREOPEN, c"freopen",
fn freopen(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void, |call| reopen(call, stream) }
opens! { FREOPEN64, c"freopen64",
fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void, |call| reopen(call, stream) }
opens! { TMPFILE, c"tmpfile", fn tmpfile() -> *mut c_void, |call| open_stream(call, OpenCall::Tmpfile) }
opens! { TMPFILE64, c"tmpfile64", fn tmpfile64() -> *mut c_void, |call| open_stream(call, OpenCall::Tmpfile) }
opens! { POPEN, c"popen",
fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void, |call| open_command(call) }
opens! { OPENDIR, c"opendir", fn opendir(path: *const c_char) -> *mut c_void, |call| open_directory(call) }
opens! { MKSTEMP, c"mkstemp",
fn mkstemp(template: *mut c_char) -> c_int, |call| open_within(call, OpenCall::Mkstemp) }
opens! { MKSTEMP64, c"mkstemp64",
fn mkstemp64(template: *mut c_char) -> c_int, |call| open_within(call, OpenCall::Mkstemp) }
opens! { MKOSTEMP, c"mkostemp",
fn mkostemp(template: *mut c_char, flags: c_int) -> c_int, |call| open_within(call, OpenCall::Mkstemp) }
opens! { MKOSTEMP64, c"mkostemp64",
fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int, |call| open_within(call, OpenCall::Mkstemp) }
opens! { MKSTEMPS, c"mkstemps",
fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int, |call| open_within(call, OpenCall::Mkstemp) }
opens! { MKSTEMPS64, c"mkstemps64",
fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int, |call| open_within(call, OpenCall::Mkstemp) }
opens! { MKOSTEMPS, c"mkostemps",
fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int, |call| open_within(call, OpenCall::Mkstemp) }
opens! { MKOSTEMPS64, c"mkostemps64",
fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int, |call| open_within(call, OpenCall::Mkstemp) }

#[inline]
fn open_stream(call: impl Fn() -> *mut c_void, how: OpenCall) -> *mut c_void {
    let since = now();
    let stream = retry_when_full(call);
    born_within(number_of_stream(stream), how, since);
    stream
}

#[inline]
fn open_command(call: impl Fn() -> *mut c_void) -> *mut c_void {
    let stream = open_stream(call, OpenCall::Popen);
    // SAFETY: `popen` just returned it.
    started(unsafe { child_of_stream(stream) });
    stream
}

#[inline]
fn open_directory(call: impl Fn() -> *mut c_void) -> *mut c_void {
    let since = now();
    let stream = retry_when_full(call);
    born_within(number_of_directory(stream), OpenCall::Opendir, since);
    stream
}

/// The old descriptor is closed first, even if no new one can be opened.
#[inline]
fn reopen(call: impl Fn() -> *mut c_void, stream: *mut c_void) -> *mut c_void {
    let before = number_of_stream(stream);
    let buried = close::stream(before);
    let ending = ending(before);
    let since = now();
    let result = call();
    ended(before, ending, 0);
    if number_of_stream(result) == before {
        buried.reused();
    } else {
        buried.over();
    }
    born_within(number_of_stream(result), OpenCall::Freopen, since);
    result
}
