//! Streams and directory streams, which the C library opens and closes without calling the
//! interposed functions.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_char, c_int, c_void};

use fdguard_wire::OpenCall;

use super::spawn::child_of_stream;
use super::{missing, retry_when_full};
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

// SAFETY: the type matches the manual page.
static FOPEN: Real<unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void> =
    unsafe { Real::new(c"fopen") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void {
    let Some(real) = FOPEN.get() else {
        missing();
        return core::ptr::null_mut();
    };
    let since = now();
    // SAFETY: passes on the caller's arguments.
    let stream = retry_when_full(|| unsafe { real(path, mode) });
    born_within(number_of_stream(stream), OpenCall::Fopen, since);
    stream
}

// SAFETY: the type matches the manual page.
static FOPEN64: Real<unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void> =
    unsafe { Real::new(c"fopen64") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void {
    let Some(real) = FOPEN64.get() else {
        missing();
        return core::ptr::null_mut();
    };
    let since = now();
    // SAFETY: passes on the caller's arguments.
    let stream = retry_when_full(|| unsafe { real(path, mode) });
    born_within(number_of_stream(stream), OpenCall::Fopen, since);
    stream
}

// SAFETY: the type matches the manual page.
static FREOPEN: Real<
    unsafe extern "C" fn(*const c_char, *const c_char, *mut c_void) -> *mut c_void,
> = unsafe { Real::new(c"freopen") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut c_void,
) -> *mut c_void {
    let Some(real) = FREOPEN.get() else {
        missing();
        return core::ptr::null_mut();
    };
    // The old descriptor is closed first, even if no new one can be opened.
    let before = number_of_stream(stream);
    let buried = close::stream(before);
    let ending = ending(before);
    let since = now();
    // SAFETY: passes on the caller's arguments.
    let result = unsafe { real(path, mode, stream) };
    ended(before, ending, 0);
    if number_of_stream(result) == before {
        buried.reused();
    } else {
        buried.over();
    }
    born_within(number_of_stream(result), OpenCall::Freopen, since);
    result
}

// SAFETY: the type matches the manual page.
static FREOPEN64: Real<
    unsafe extern "C" fn(*const c_char, *const c_char, *mut c_void) -> *mut c_void,
> = unsafe { Real::new(c"freopen64") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut c_void,
) -> *mut c_void {
    let Some(real) = FREOPEN64.get() else {
        missing();
        return core::ptr::null_mut();
    };
    // The old descriptor is closed first, even if no new one can be opened.
    let before = number_of_stream(stream);
    let buried = close::stream(before);
    let ending = ending(before);
    let since = now();
    // SAFETY: passes on the caller's arguments.
    let result = unsafe { real(path, mode, stream) };
    ended(before, ending, 0);
    if number_of_stream(result) == before {
        buried.reused();
    } else {
        buried.over();
    }
    born_within(number_of_stream(result), OpenCall::Freopen, since);
    result
}

// SAFETY: the type matches the manual page.
static TMPFILE: Real<unsafe extern "C" fn() -> *mut c_void> = unsafe { Real::new(c"tmpfile") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn tmpfile() -> *mut c_void {
    let Some(real) = TMPFILE.get() else {
        missing();
        return core::ptr::null_mut();
    };
    let since = now();
    // SAFETY: passes on the caller's arguments.
    let stream = retry_when_full(|| unsafe { real() });
    born_within(number_of_stream(stream), OpenCall::Tmpfile, since);
    stream
}

// SAFETY: the type matches the manual page.
static TMPFILE64: Real<unsafe extern "C" fn() -> *mut c_void> = unsafe { Real::new(c"tmpfile64") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn tmpfile64() -> *mut c_void {
    let Some(real) = TMPFILE64.get() else {
        missing();
        return core::ptr::null_mut();
    };
    let since = now();
    // SAFETY: passes on the caller's arguments.
    let stream = retry_when_full(|| unsafe { real() });
    born_within(number_of_stream(stream), OpenCall::Tmpfile, since);
    stream
}

// SAFETY: the type matches the manual page.
static POPEN: Real<unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void> =
    unsafe { Real::new(c"popen") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    let Some(real) = POPEN.get() else {
        missing();
        return core::ptr::null_mut();
    };
    let since = now();
    // SAFETY: passes on the caller's arguments.
    let stream = retry_when_full(|| unsafe { real(command, mode) });
    born_within(number_of_stream(stream), OpenCall::Popen, since);
    // SAFETY: `popen` just returned it.
    started(unsafe { child_of_stream(stream) });
    stream
}

// SAFETY: the type matches the manual page.
static OPENDIR: Real<unsafe extern "C" fn(*const c_char) -> *mut c_void> =
    unsafe { Real::new(c"opendir") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn opendir(path: *const c_char) -> *mut c_void {
    let Some(real) = OPENDIR.get() else {
        missing();
        return core::ptr::null_mut();
    };
    let since = now();
    // SAFETY: passes on the caller's arguments.
    let stream = retry_when_full(|| unsafe { real(path) });
    born_within(number_of_directory(stream), OpenCall::Opendir, since);
    stream
}

/// A function that creates a file with a unique name and returns its number.
macro_rules! makes_temporary {
    ($real:ident, $name:literal, fn $function:ident($($argument:ident: $type:ty),*)) => {
        static $real: Real<unsafe extern "C" fn($($type),*) -> c_int> =
            // SAFETY: the type matches the manual page.
            unsafe { Real::new($name) };

        // SAFETY: interposed on purpose; the type matches the manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        unsafe extern "C" fn $function($($argument: $type),*) -> c_int {
            let Some(real) = $real.get() else {
                return missing();
            };
            let since = now();
            // SAFETY: passes on the caller's arguments.
            let fd = retry_when_full(|| unsafe { real($($argument),*) });
            born_within(fd, OpenCall::Mkstemp, since);
            fd
        }
    };
}

makes_temporary! { MKSTEMP, c"mkstemp", fn mkstemp(template: *mut c_char) }
makes_temporary! { MKSTEMP64, c"mkstemp64", fn mkstemp64(template: *mut c_char) }
makes_temporary! { MKOSTEMP, c"mkostemp", fn mkostemp(template: *mut c_char, flags: c_int) }
makes_temporary! { MKOSTEMP64, c"mkostemp64", fn mkostemp64(template: *mut c_char, flags: c_int) }
makes_temporary! { MKSTEMPS, c"mkstemps", fn mkstemps(template: *mut c_char, suffix: c_int) }
makes_temporary! { MKSTEMPS64, c"mkstemps64", fn mkstemps64(template: *mut c_char, suffix: c_int) }
makes_temporary! { MKOSTEMPS, c"mkostemps", fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) }
makes_temporary! { MKOSTEMPS64, c"mkostemps64", fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) }
