//! The system call `bpf`, for the three things we ask of it.
#![expect(unsafe_code, reason = "no safe wrapper makes this system call")]

use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const ITER_CREATE: libc::c_int = 33;
const TRACING: u32 = 26;
const TRACE_ITER: u32 = 28;
/// Some helpers are for programs whose licence allows what the kernel's does; ours does.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// The head of `union bpf_attr` for loading a program.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach: u32,
    btf: u32,
    func_info_size: u32,
    func_info: u64,
    func_infos: u32,
    line_info_size: u32,
    line_info: u64,
    line_infos: u32,
    target: u32,
}

/// The same for a link.
#[repr(C)]
#[derive(Default)]
struct Link {
    program: u32,
    target: u32,
    attach: u32,
    flags: u32,
    info: u64,
    info_length: u32,
    zero: u32,
}

/// The same for an iterator.
#[repr(C)]
#[derive(Default)]
struct Iter {
    link: u32,
    flags: u32,
}

/// Loads a program for an iterator; `target` is the number of the iterator's function.
pub(super) fn load(code: &[u8], target: u32) -> Result<OwnedFd, Errno> {
    let mut name = [0; 16];
    name[..7].copy_from_slice(b"fdguard");
    let attributes = Load {
        kind: TRACING,
        instructions: u32::try_from(code.len() / 8).or(Err(Errno::INVAL))?,
        code: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        name,
        attach: TRACE_ITER,
        target,
        ..Load::default()
    };
    bpf(PROG_LOAD, &attributes)
}

/// Ties a program to its iterator.
pub(super) fn link(program: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let attributes = Link {
        program: number(program)?,
        attach: TRACE_ITER,
        ..Link::default()
    };
    bpf(LINK_CREATE, &attributes)
}

/// One walk: reading from it runs the program.
pub(super) fn walk(link: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let attributes = Iter {
        link: number(link)?,
        flags: 0,
    };
    bpf(ITER_CREATE, &attributes)
}

fn number(file: BorrowedFd<'_>) -> Result<u32, Errno> {
    u32::try_from(file.as_raw_fd()).or(Err(Errno::BADF))
}

/// Only for the three commands above, all of which give a new descriptor that closes at exec.
fn bpf<T>(command: libc::c_int, attributes: &T) -> Result<OwnedFd, Errno> {
    // SAFETY: the kernel reads as many bytes as the structure has, which outlives the call, and follows the
    // addresses in it to slices that the caller borrows until it returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match i32::try_from(result) {
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .map_or(Errno::INVAL, Errno::from_raw_os_error)),
    }
}
