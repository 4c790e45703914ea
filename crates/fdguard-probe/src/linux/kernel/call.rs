//! The `bpf` system call, for the commands used here.
#![expect(unsafe_code, reason = "no safe wrapper makes this system call")]

use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const ITER_CREATE: libc::c_int = 33;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const TRACING: u32 = 26;
const TRACE_ITER: u32 = 28;
/// Some helpers require a GPL-compatible licence; this is one.
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

/// Which tasks an iterator covers: `union bpf_iter_link_info`, all zero for every task.
#[repr(C)]
#[derive(Default)]
struct Tasks {
    thread: u32,
    process: u32,
    handle: u32,
}

/// Attaches a program to its iterator over the table of one thread, or over every table. Kernels
/// before 6.1 ignore the thread: the caller must expect the records of others.
pub(super) fn link(program: BorrowedFd<'_>, thread: Option<u32>) -> Result<OwnedFd, Errno> {
    let tasks = Tasks {
        thread: thread.unwrap_or(0),
        ..Tasks::default()
    };
    let mut attributes = Link {
        program: number(program)?,
        attach: TRACE_ITER,
        ..Link::default()
    };
    if thread.is_some() {
        attributes.info = std::ptr::from_ref(&tasks) as u64;
        attributes.info_length = size_of::<Tasks>() as u32;
    }
    bpf(LINK_CREATE, &attributes)
}

/// Starts one walk: reading from it runs the program.
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

/// The same for querying an object.
#[repr(C)]
struct InfoByFd {
    object: u32,
    length: u32,
    info: u64,
}

/// The kernel's information about a map or a program: the first bytes of its structure.
pub(in crate::linux) fn object_info(object: BorrowedFd<'_>) -> Result<[u8; 128], Errno> {
    let mut info = [0_u64; 16];
    let mut attributes = InfoByFd {
        object: u32::try_from(object.as_raw_fd()).or(Err(Errno::BADF))?,
        length: 128,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: the kernel reads the structure, writes at most `length` bytes to the array, which has
    // that many, and writes the length it used back to the structure; both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            OBJ_GET_INFO_BY_FD,
            &raw mut attributes,
            size_of::<InfoByFd>(),
        )
    };
    if result < 0 {
        let code = std::io::Error::last_os_error().raw_os_error();
        return Err(code.map_or(Errno::INVAL, Errno::from_raw_os_error));
    }
    let mut bytes = [0; 128];
    for (slot, word) in bytes.chunks_exact_mut(8).zip(info) {
        slot.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(bytes)
}

/// Only for the three commands above, all of which return a new close-on-exec descriptor.
fn bpf<T>(command: libc::c_int, attributes: &T) -> Result<OwnedFd, Errno> {
    // SAFETY: the kernel reads as many bytes as the structure has, which outlives the call, and
    // follows the addresses in it to slices that the caller borrows until it returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match i32::try_from(result) {
        // SAFETY: the kernel has just created this descriptor, and nothing else uses it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .map_or(Errno::INVAL, Errno::from_raw_os_error)),
    }
}
