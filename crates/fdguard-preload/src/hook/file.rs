//! Calls that open files and other named objects.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{CStr, c_char, c_int, c_uint};

use fdguard_wire::OpenCall;

use super::{missing, retry_when_full};
use crate::creator;
use crate::protect::answer;
use crate::protect::reserved_range::place;
use crate::real::Real;
use crate::record::born;

/// No directory descriptor: relative paths start at the working directory.
const AT_FDCWD: c_int = -100;
/// The flags that `creat` opens with.
const O_WRONLY: c_int = 1;

/// Python opens the modules that it imports through two of these calls.
///
/// # Safety
/// If `fd` is a number, the path must be a C string.
unsafe fn opened(fd: c_int, path: *const c_char) {
    if fd >= 0 {
        // SAFETY: guaranteed by the caller.
        creator::file_opened(|| unsafe { CStr::from_ptr(path) }.to_bytes());
    }
}

// SAFETY: the type matches the manual page.
static OPEN: Real<unsafe extern "C" fn(*const c_char, c_int, c_uint) -> c_int> =
    unsafe { Real::new(c"open") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let Some(real) = OPEN.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let open = || unsafe { real(path, flags, mode) };
    let fd = place(AT_FDCWD, path, flags, || retry_when_full(open));
    // SAFETY: the kernel has read the path.
    unsafe { opened(fd, path) };
    born(fd, OpenCall::Open)
}

// SAFETY: the type matches the manual page.
static OPEN64: Real<unsafe extern "C" fn(*const c_char, c_int, c_uint) -> c_int> =
    unsafe { Real::new(c"open64") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let Some(real) = OPEN64.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let open = || unsafe { real(path, flags, mode) };
    let fd = place(AT_FDCWD, path, flags, || retry_when_full(open));
    // SAFETY: the kernel has read the path.
    unsafe { opened(fd, path) };
    born(fd, OpenCall::Open)
}

// SAFETY: the type matches the manual page.
static OPENAT: Real<unsafe extern "C" fn(c_int, *const c_char, c_int, c_uint) -> c_int> =
    unsafe { Real::new(c"openat") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let Some(real) = OPENAT.get() else {
        return missing();
    };
    if answer::is_gone_at(dir, path) {
        return answer::refuse();
    }
    // SAFETY: passes on the caller's arguments.
    let open = || unsafe { real(dir, path, flags, mode) };
    let fd = place(dir, path, flags, || retry_when_full(open));
    born(fd, OpenCall::Open)
}

// SAFETY: the type matches the manual page.
static OPENAT64: Real<unsafe extern "C" fn(c_int, *const c_char, c_int, c_uint) -> c_int> =
    unsafe { Real::new(c"openat64") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn openat64(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    let Some(real) = OPENAT64.get() else {
        return missing();
    };
    if answer::is_gone_at(dir, path) {
        return answer::refuse();
    }
    // SAFETY: passes on the caller's arguments.
    let open = || unsafe { real(dir, path, flags, mode) };
    let fd = place(dir, path, flags, || retry_when_full(open));
    born(fd, OpenCall::Open)
}

// SAFETY: the type matches the manual page.
static FORTIFIED_OPEN_2: Real<unsafe extern "C" fn(*const c_char, c_int) -> c_int> =
    unsafe { Real::new(c"__open_2") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    let Some(real) = FORTIFIED_OPEN_2.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let open = || unsafe { real(path, flags) };
    let fd = place(AT_FDCWD, path, flags, || retry_when_full(open));
    born(fd, OpenCall::Open)
}

// SAFETY: the type matches the manual page.
static FORTIFIED_OPEN64_2: Real<unsafe extern "C" fn(*const c_char, c_int) -> c_int> =
    unsafe { Real::new(c"__open64_2") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    let Some(real) = FORTIFIED_OPEN64_2.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let open = || unsafe { real(path, flags) };
    let fd = place(AT_FDCWD, path, flags, || retry_when_full(open));
    born(fd, OpenCall::Open)
}

// SAFETY: the type matches the manual page.
static FORTIFIED_OPENAT_2: Real<unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int> =
    unsafe { Real::new(c"__openat_2") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    let Some(real) = FORTIFIED_OPENAT_2.get() else {
        return missing();
    };
    if answer::is_gone_at(dir, path) {
        return answer::refuse();
    }
    // SAFETY: passes on the caller's arguments.
    let open = || unsafe { real(dir, path, flags) };
    let fd = place(dir, path, flags, || retry_when_full(open));
    born(fd, OpenCall::Open)
}

// SAFETY: the type matches the manual page.
static FORTIFIED_OPENAT64_2: Real<unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int> =
    unsafe { Real::new(c"__openat64_2") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    let Some(real) = FORTIFIED_OPENAT64_2.get() else {
        return missing();
    };
    if answer::is_gone_at(dir, path) {
        return answer::refuse();
    }
    // SAFETY: passes on the caller's arguments.
    let open = || unsafe { real(dir, path, flags) };
    let fd = place(dir, path, flags, || retry_when_full(open));
    born(fd, OpenCall::Open)
}

// SAFETY: the type matches the manual page.
static CREAT: Real<unsafe extern "C" fn(*const c_char, c_uint) -> c_int> =
    unsafe { Real::new(c"creat") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn creat(path: *const c_char, mode: c_uint) -> c_int {
    let Some(real) = CREAT.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let open = || unsafe { real(path, mode) };
    let fd = place(AT_FDCWD, path, O_WRONLY, || retry_when_full(open));
    born(fd, OpenCall::Creat)
}

// SAFETY: the type matches the manual page.
static CREAT64: Real<unsafe extern "C" fn(*const c_char, c_uint) -> c_int> =
    unsafe { Real::new(c"creat64") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn creat64(path: *const c_char, mode: c_uint) -> c_int {
    let Some(real) = CREAT64.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let open = || unsafe { real(path, mode) };
    let fd = place(AT_FDCWD, path, O_WRONLY, || retry_when_full(open));
    born(fd, OpenCall::Creat)
}

// SAFETY: the type matches the manual page.
static SHM_OPEN: Real<unsafe extern "C" fn(*const c_char, c_int, c_uint) -> c_int> =
    unsafe { Real::new(c"shm_open") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn shm_open(name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let Some(real) = SHM_OPEN.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(name, flags, mode) });
    born(fd, OpenCall::ShmOpen)
}

// SAFETY: the type matches the manual page.
static MQ_OPEN: Real<unsafe extern "C" fn(*const c_char, c_int, c_uint, *mut c_char) -> c_int> =
    unsafe { Real::new(c"mq_open") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn mq_open(
    name: *const c_char,
    flags: c_int,
    mode: c_uint,
    attributes: *mut c_char,
) -> c_int {
    let Some(real) = MQ_OPEN.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(name, flags, mode, attributes) });
    born(fd, OpenCall::MqOpen)
}

// SAFETY: the type matches the manual page.
static FORTIFIED_MQ_OPEN_2: Real<unsafe extern "C" fn(*const c_char, c_int) -> c_int> =
    unsafe { Real::new(c"__mq_open_2") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn __mq_open_2(name: *const c_char, flags: c_int) -> c_int {
    let Some(real) = FORTIFIED_MQ_OPEN_2.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(name, flags) });
    born(fd, OpenCall::MqOpen)
}

// SAFETY: the type matches the manual page.
static MEMFD_CREATE: Real<unsafe extern "C" fn(*const c_char, c_uint) -> c_int> =
    unsafe { Real::new(c"memfd_create") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn memfd_create(name: *const c_char, flags: c_uint) -> c_int {
    let Some(real) = MEMFD_CREATE.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(name, flags) });
    born(fd, OpenCall::Memfd)
}
