//! Streams and folders: the C library opens and closes these without passing by our names.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_char, c_int, c_void};

use fdguard_wire::How;

use super::missing;
use crate::real::Real;
use crate::record::{born_within, ended, ending, now};

// SAFETY: the type of its manual page.
static FILENO: Real<unsafe extern "C" fn(*mut c_void) -> c_int> = unsafe { Real::new(c"fileno") };

// SAFETY: the type of its manual page.
static DIRFD: Real<unsafe extern "C" fn(*mut c_void) -> c_int> = unsafe { Real::new(c"dirfd") };

/// The number of a stream, -1 for one that has none.
pub(super) fn number_of_stream(stream: *mut c_void) -> c_int {
    number(&FILENO, stream)
}

/// The number of an open folder.
pub(super) fn number_of_directory(directory: *mut c_void) -> c_int {
    number(&DIRFD, directory)
}

fn number(real: &Real<unsafe extern "C" fn(*mut c_void) -> c_int>, stream: *mut c_void) -> c_int {
    let Some(real) = real.get().filter(|_| !stream.is_null()) else {
        return -1;
    };
    let error = crate::errno::load();
    // SAFETY: what the program itself is about to use, or got from the C library just now.
    let fd = unsafe { real(stream) };
    crate::errno::store(error);
    fd
}

// SAFETY: the type of its manual page.
static FOPEN: Real<unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void> =
    unsafe { Real::new(c"fopen") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void {
    let Some(real) = FOPEN.get() else {
        missing();
        return core::ptr::null_mut();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let stream = unsafe { real(path, mode) };
    born_within(number_of_stream(stream), How::Fopen, since);
    stream
}

// SAFETY: the type of its manual page.
static FOPEN64: Real<unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void> =
    unsafe { Real::new(c"fopen64") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void {
    let Some(real) = FOPEN64.get() else {
        missing();
        return core::ptr::null_mut();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let stream = unsafe { real(path, mode) };
    born_within(number_of_stream(stream), How::Fopen, since);
    stream
}

// SAFETY: the type of its manual page.
static FREOPEN: Real<
    unsafe extern "C" fn(*const c_char, *const c_char, *mut c_void) -> *mut c_void,
> = unsafe { Real::new(c"freopen") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
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
    // The old one is closed first, even when no new one can be opened.
    let before = number_of_stream(stream);
    let ending = ending(before);
    let since = now();
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(path, mode, stream) };
    ended(before, ending, 0);
    born_within(number_of_stream(result), How::Freopen, since);
    result
}

// SAFETY: the type of its manual page.
static FREOPEN64: Real<
    unsafe extern "C" fn(*const c_char, *const c_char, *mut c_void) -> *mut c_void,
> = unsafe { Real::new(c"freopen64") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
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
    // The old one is closed first, even when no new one can be opened.
    let before = number_of_stream(stream);
    let ending = ending(before);
    let since = now();
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(path, mode, stream) };
    ended(before, ending, 0);
    born_within(number_of_stream(result), How::Freopen, since);
    result
}

// SAFETY: the type of its manual page.
static TMPFILE: Real<unsafe extern "C" fn() -> *mut c_void> = unsafe { Real::new(c"tmpfile") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn tmpfile() -> *mut c_void {
    let Some(real) = TMPFILE.get() else {
        missing();
        return core::ptr::null_mut();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let stream = unsafe { real() };
    born_within(number_of_stream(stream), How::Tmpfile, since);
    stream
}

// SAFETY: the type of its manual page.
static TMPFILE64: Real<unsafe extern "C" fn() -> *mut c_void> = unsafe { Real::new(c"tmpfile64") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn tmpfile64() -> *mut c_void {
    let Some(real) = TMPFILE64.get() else {
        missing();
        return core::ptr::null_mut();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let stream = unsafe { real() };
    born_within(number_of_stream(stream), How::Tmpfile, since);
    stream
}

// SAFETY: the type of its manual page.
static POPEN: Real<unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void> =
    unsafe { Real::new(c"popen") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    let Some(real) = POPEN.get() else {
        missing();
        return core::ptr::null_mut();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let stream = unsafe { real(command, mode) };
    born_within(number_of_stream(stream), How::Popen, since);
    stream
}

// SAFETY: the type of its manual page.
static OPENDIR: Real<unsafe extern "C" fn(*const c_char) -> *mut c_void> =
    unsafe { Real::new(c"opendir") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn opendir(path: *const c_char) -> *mut c_void {
    let Some(real) = OPENDIR.get() else {
        missing();
        return core::ptr::null_mut();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let stream = unsafe { real(path) };
    born_within(number_of_directory(stream), How::Opendir, since);
    stream
}

// SAFETY: the type of its manual page.
static MKSTEMP: Real<unsafe extern "C" fn(*mut c_char) -> c_int> = unsafe { Real::new(c"mkstemp") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn mkstemp(template: *mut c_char) -> c_int {
    let Some(real) = MKSTEMP.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let fd = unsafe { real(template) };
    born_within(fd, How::Mkstemp, since);
    fd
}

// SAFETY: the type of its manual page.
static MKSTEMP64: Real<unsafe extern "C" fn(*mut c_char) -> c_int> =
    unsafe { Real::new(c"mkstemp64") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn mkstemp64(template: *mut c_char) -> c_int {
    let Some(real) = MKSTEMP64.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let fd = unsafe { real(template) };
    born_within(fd, How::Mkstemp, since);
    fd
}

// SAFETY: the type of its manual page.
static MKOSTEMP: Real<unsafe extern "C" fn(*mut c_char, c_int) -> c_int> =
    unsafe { Real::new(c"mkostemp") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn mkostemp(template: *mut c_char, flags: c_int) -> c_int {
    let Some(real) = MKOSTEMP.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let fd = unsafe { real(template, flags) };
    born_within(fd, How::Mkstemp, since);
    fd
}

// SAFETY: the type of its manual page.
static MKOSTEMP64: Real<unsafe extern "C" fn(*mut c_char, c_int) -> c_int> =
    unsafe { Real::new(c"mkostemp64") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int {
    let Some(real) = MKOSTEMP64.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let fd = unsafe { real(template, flags) };
    born_within(fd, How::Mkstemp, since);
    fd
}

// SAFETY: the type of its manual page.
static MKSTEMPS: Real<unsafe extern "C" fn(*mut c_char, c_int) -> c_int> =
    unsafe { Real::new(c"mkstemps") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int {
    let Some(real) = MKSTEMPS.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let fd = unsafe { real(template, suffix) };
    born_within(fd, How::Mkstemp, since);
    fd
}

// SAFETY: the type of its manual page.
static MKSTEMPS64: Real<unsafe extern "C" fn(*mut c_char, c_int) -> c_int> =
    unsafe { Real::new(c"mkstemps64") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int {
    let Some(real) = MKSTEMPS64.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let fd = unsafe { real(template, suffix) };
    born_within(fd, How::Mkstemp, since);
    fd
}

// SAFETY: the type of its manual page.
static MKOSTEMPS: Real<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int> =
    unsafe { Real::new(c"mkostemps") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    let Some(real) = MKOSTEMPS.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let fd = unsafe { real(template, suffix, flags) };
    born_within(fd, How::Mkstemp, since);
    fd
}

// SAFETY: the type of its manual page.
static MKOSTEMPS64: Real<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int> =
    unsafe { Real::new(c"mkostemps64") };

// SAFETY: the name is interposed on purpose, with the type of its manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    let Some(real) = MKOSTEMPS64.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: the caller's own arguments.
    let fd = unsafe { real(template, suffix, flags) };
    born_within(fd, How::Mkstemp, since);
    fd
}
