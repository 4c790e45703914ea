//! Calls that would succeed on a placeholder, and other ways to revive a stale number.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};

use super::asks;

asks! { FSTAT, c"fstat", fn fstat(fd: c_int, stat: *mut c_void) -> c_int }
asks! { FSTAT64, c"fstat64", fn fstat64(fd: c_int, stat: *mut c_void) -> c_int }
asks! { versioned FXSTAT, c"__fxstat", fn __fxstat(version: c_int, fd: c_int, stat: *mut c_void) -> c_int }
asks! { versioned FXSTAT64, c"__fxstat64", fn __fxstat64(version: c_int, fd: c_int, stat: *mut c_void) -> c_int }
asks! { at FSTATAT, c"fstatat",
fn fstatat(dir: c_int, path: *const c_char, stat: *mut c_void, flags: c_int) -> c_int }
asks! { at FSTATAT64, c"fstatat64",
fn fstatat64(dir: c_int, path: *const c_char, stat: *mut c_void, flags: c_int) -> c_int }
asks! { at STATX, c"statx",
fn statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, stat: *mut c_void) -> c_int }
asks! { at FACCESSAT, c"faccessat",
fn faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int }
asks! { at MKDIRAT, c"mkdirat", fn mkdirat(dir: c_int, path: *const c_char, mode: c_uint) -> c_int }
asks! { at UNLINKAT, c"unlinkat", fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int }
asks! { at READLINKAT, c"readlinkat",
fn readlinkat(dir: c_int, path: *const c_char, room: *mut c_char, length: usize) -> isize }
asks! { at FCHMODAT, c"fchmodat",
fn fchmodat(dir: c_int, path: *const c_char, mode: c_uint, flags: c_int) -> c_int }
asks! { at FCHOWNAT, c"fchownat",
fn fchownat(dir: c_int, path: *const c_char, user: c_uint, group: c_uint, flags: c_int) -> c_int }
asks! { at UTIMENSAT, c"utimensat",
fn utimensat(dir: c_int, path: *const c_char, times: *const c_void, flags: c_int) -> c_int }
asks! { FCHDIR, c"fchdir", fn fchdir(fd: c_int) -> c_int }
asks! { FPATHCONF, c"fpathconf", fn fpathconf(fd: c_int, name: c_int) -> c_long }
asks! { FSTATVFS, c"fstatvfs", fn fstatvfs(fd: c_int, stat: *mut c_void) -> c_int }
asks! { FSTATVFS64, c"fstatvfs64", fn fstatvfs64(fd: c_int, stat: *mut c_void) -> c_int }
asks! { FSTATFS, c"fstatfs", fn fstatfs(fd: c_int, stat: *mut c_void) -> c_int }
asks! { FSTATFS64, c"fstatfs64", fn fstatfs64(fd: c_int, stat: *mut c_void) -> c_int }
asks! { FDOPEN, c"fdopen", fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void }
asks! { FDOPENDIR, c"fdopendir", fn fdopendir(fd: c_int) -> *mut c_void }
