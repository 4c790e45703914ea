//! Reads and writes: which thread uses a descriptor.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_uint, c_void};

use fdguard_wire::FdCall;

use super::on_descriptor;

/// `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Part {
    start: *const u8,
    length: usize,
}

/// Nothing to read or to write: programs use this to check whether a number is open.
fn of(touch: FdCall, length: usize) -> FdCall {
    if length == 0 { FdCall::Other } else { touch }
}

/// The bytes that the kernel accepted from here; empty after a failure.
pub(super) fn taken<'a>(start: *const c_void, result: isize) -> &'a [u8] {
    const ENOUGH: usize = 16;
    let bytes = usize::try_from(result).unwrap_or(0).min(ENOUGH);
    if bytes == 0 || start.is_null() {
        return &[];
    }
    // SAFETY: the kernel has read this many bytes from there during this call, and the caller has
    // not returned yet.
    unsafe { core::slice::from_raw_parts(start.cast(), bytes) }
}

/// The same from the first of several parts.
fn taken_in_parts<'a>(parts: *const Part, result: isize) -> &'a [u8] {
    if result <= 0 {
        return &[];
    }
    // SAFETY: the kernel accepted bytes from the parts, so there is at least one.
    let first = unsafe { parts.read() };
    let length = isize::try_from(first.length).unwrap_or(isize::MAX);
    taken(first.start.cast(), result.min(length))
}

on_descriptor! { READ, c"read", of(FdCall::Read, length),
fn read(fd: c_int, buffer: *mut c_void, length: usize) -> isize }
on_descriptor! { READ_CHK, c"__read_chk", FdCall::Read,
fn __read_chk(fd: c_int, buffer: *mut c_void, length: usize, room: usize) -> isize }
on_descriptor! { PREAD, c"pread", FdCall::Read,
fn pread(fd: c_int, buffer: *mut c_void, length: usize, at: i64) -> isize }
on_descriptor! { PREAD64, c"pread64", FdCall::Read,
fn pread64(fd: c_int, buffer: *mut c_void, length: usize, at: i64) -> isize }
on_descriptor! { PREAD_CHK, c"__pread_chk", FdCall::Read,
fn __pread_chk(fd: c_int, buffer: *mut c_void, length: usize, at: i64, room: usize) -> isize }
on_descriptor! { PREAD64_CHK, c"__pread64_chk", FdCall::Read,
fn __pread64_chk(fd: c_int, buffer: *mut c_void, length: usize, at: i64, room: usize) -> isize }
on_descriptor! { READV, c"readv", FdCall::Read,
fn readv(fd: c_int, parts: *const Part, count: c_int) -> isize }
on_descriptor! { PREADV, c"preadv", FdCall::Read,
fn preadv(fd: c_int, parts: *const Part, count: c_int, at: i64) -> isize }
on_descriptor! { PREADV64, c"preadv64", FdCall::Read,
fn preadv64(fd: c_int, parts: *const Part, count: c_int, at: i64) -> isize }
on_descriptor! { WRITE, c"write", of(FdCall::Write, length),
fn write(fd: c_int, buffer: *const c_void, length: usize) -> isize,
wrote |result| taken(buffer, result) }
on_descriptor! { PWRITE, c"pwrite", FdCall::Write,
fn pwrite(fd: c_int, buffer: *const c_void, length: usize, at: i64) -> isize,
wrote |result| taken(buffer, result) }
on_descriptor! { PWRITE64, c"pwrite64", FdCall::Write,
fn pwrite64(fd: c_int, buffer: *const c_void, length: usize, at: i64) -> isize,
wrote |result| taken(buffer, result) }
on_descriptor! { WRITEV, c"writev", FdCall::Write,
fn writev(fd: c_int, parts: *const Part, count: c_int) -> isize,
wrote |result| taken_in_parts(parts, result) }
on_descriptor! { PWRITEV, c"pwritev", FdCall::Write,
fn pwritev(fd: c_int, parts: *const Part, count: c_int, at: i64) -> isize,
wrote |result| taken_in_parts(parts, result) }
on_descriptor! { PWRITEV64, c"pwritev64", FdCall::Write,
fn pwritev64(fd: c_int, parts: *const Part, count: c_int, at: i64) -> isize,
wrote |result| taken_in_parts(parts, result) }
on_descriptor! { SENDFILE, c"sendfile", FdCall::Write,
fn sendfile(fd: c_int, from: c_int, at: *mut i64, count: usize) -> isize }
on_descriptor! { SENDFILE64, c"sendfile64", FdCall::Write,
fn sendfile64(fd: c_int, from: c_int, at: *mut i64, count: usize) -> isize }
on_descriptor! { FSYNC, c"fsync", FdCall::Fsync,
fn fsync(fd: c_int) -> c_int }
on_descriptor! { FDATASYNC, c"fdatasync", FdCall::Fsync,
fn fdatasync(fd: c_int) -> c_int }
on_descriptor! { FTRUNCATE, c"ftruncate", FdCall::Truncate,
fn ftruncate(fd: c_int, length: i64) -> c_int }
on_descriptor! { FTRUNCATE64, c"ftruncate64", FdCall::Truncate,
fn ftruncate64(fd: c_int, length: i64) -> c_int }
on_descriptor! { RECV, c"recv", FdCall::Recv,
fn recv(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> isize }
on_descriptor! { RECV_CHK, c"__recv_chk", FdCall::Recv,
fn __recv_chk(fd: c_int, buffer: *mut c_void, length: usize, room: usize, flags: c_int) -> isize }
on_descriptor! { RECVFROM, c"recvfrom", FdCall::Recv,
fn recvfrom(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int, address: *mut c_void, size: *mut c_uint) -> isize }
on_descriptor! { RECVFROM_CHK, c"__recvfrom_chk", FdCall::Recv,
fn __recvfrom_chk(fd: c_int, buffer: *mut c_void, length: usize, room: usize, flags: c_int, address: *mut c_void, size: *mut c_uint) -> isize }
on_descriptor! { SEND, c"send", FdCall::Send,
fn send(fd: c_int, buffer: *const c_void, length: usize, flags: c_int) -> isize,
wrote |result| taken(buffer, result) }
on_descriptor! { SENDTO, c"sendto", FdCall::Send,
fn sendto(fd: c_int, buffer: *const c_void, length: usize, flags: c_int, address: *const c_void, size: c_uint) -> isize,
wrote |result| taken(buffer, result) }
on_descriptor! { SENDMSG, c"sendmsg", FdCall::Send,
fn sendmsg(fd: c_int, message: *const c_void, flags: c_int) -> isize }
on_descriptor! { SENDMMSG, c"sendmmsg", FdCall::Send,
fn sendmmsg(fd: c_int, messages: *mut c_void, count: c_uint, flags: c_int) -> c_int }
on_descriptor! { CONNECT, c"connect", FdCall::Connect,
fn connect(fd: c_int, address: *const c_void, size: c_uint) -> c_int }
