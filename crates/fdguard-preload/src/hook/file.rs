//! Calls that open files and other named objects.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{CStr, c_char, c_int, c_uint};

use fdguard_wire::OpenCall;

use super::opens;
use super::retry::{open as object, retry_when_full};
use crate::creator;
use crate::protect::answer;
use crate::protect::reserved_range::place;
use crate::record::born;

/// No directory descriptor: relative paths start at the working directory.
const AT_FDCWD: c_int = -100;
/// The flags that `creat` opens with.
const O_WRONLY: c_int = 1;

/// Opens a file. Python opens the modules that it imports through the two calls that use this.
#[inline]
fn module(call: impl Fn() -> c_int, path: *const c_char, flags: c_int) -> c_int {
    let fd = place(AT_FDCWD, path, flags, || retry_when_full(&call));
    if fd >= 0 {
        // SAFETY: the kernel has read the path.
        creator::file_opened(|| unsafe { CStr::from_ptr(path) }.to_bytes());
    }
    born(fd, OpenCall::Open)
}

/// Opens a file.
#[inline]
fn file(call: impl Fn() -> c_int, path: *const c_char, flags: c_int, how: OpenCall) -> c_int {
    let fd = place(AT_FDCWD, path, flags, || retry_when_full(&call));
    born(fd, how)
}

/// Opens a file relative to a directory.
#[inline]
fn file_at(call: impl Fn() -> c_int, dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    if answer::is_gone_at(dir, path) {
        return answer::refuse();
    }
    let fd = place(dir, path, flags, || retry_when_full(&call));
    born(fd, OpenCall::Open)
}

opens! { OPEN, c"open",
fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int, |call| module(call, path, flags) }
opens! { OPEN64, c"open64",
fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int, |call| module(call, path, flags) }
opens! { FORTIFIED_OPEN_2, c"__open_2",
fn __open_2(path: *const c_char, flags: c_int) -> c_int, |call| file(call, path, flags, OpenCall::Open) }
opens! { FORTIFIED_OPEN64_2, c"__open64_2",
fn __open64_2(path: *const c_char, flags: c_int) -> c_int, |call| file(call, path, flags, OpenCall::Open) }
opens! { CREAT, c"creat",
fn creat(path: *const c_char, mode: c_uint) -> c_int, |call| file(call, path, O_WRONLY, OpenCall::Creat) }
opens! { CREAT64, c"creat64",
fn creat64(path: *const c_char, mode: c_uint) -> c_int, |call| file(call, path, O_WRONLY, OpenCall::Creat) }
opens! { OPENAT, c"openat",
fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int, |call| file_at(call, dir, path, flags) }
opens! { OPENAT64, c"openat64",
fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int, |call| file_at(call, dir, path, flags) }
opens! { FORTIFIED_OPENAT_2, c"__openat_2",
fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int, |call| file_at(call, dir, path, flags) }
opens! { FORTIFIED_OPENAT64_2, c"__openat64_2",
fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int, |call| file_at(call, dir, path, flags) }
opens! { SHM_OPEN, c"shm_open",
fn shm_open(name: *const c_char, flags: c_int, mode: c_uint) -> c_int, |call| object(call, OpenCall::ShmOpen) }
opens! { MQ_OPEN, c"mq_open",
fn mq_open(name: *const c_char, flags: c_int, mode: c_uint, attributes: *mut c_char) -> c_int, |call| object(call, OpenCall::MqOpen) }
opens! { FORTIFIED_MQ_OPEN_2, c"__mq_open_2",
fn __mq_open_2(name: *const c_char, flags: c_int) -> c_int, |call| object(call, OpenCall::MqOpen) }
opens! { MEMFD_CREATE, c"memfd_create",
fn memfd_create(name: *const c_char, flags: c_uint) -> c_int, |call| object(call, OpenCall::Memfd) }
