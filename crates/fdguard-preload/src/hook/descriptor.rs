//! Descriptors without a name: sockets, pipes, duplicates, events.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_uint, c_void};

use fdguard_wire::OpenCall;

use super::{missing, retry_when_full};
use crate::creator;
use crate::protect::{self, answer};
use crate::real::Real;
use crate::record::{born, born_from, born_of, reborn, socket_born};

// SAFETY: the type matches the manual page.
static SOCKET: Real<unsafe extern "C" fn(c_int, c_int, c_int) -> c_int> =
    unsafe { Real::new(c"socket") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let Some(real) = SOCKET.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(domain, kind, protocol) });
    socket_born(fd, OpenCall::Socket, domain, kind)
}

// SAFETY: the type matches the manual page.
static DUP: Real<unsafe extern "C" fn(c_int) -> c_int> = unsafe { Real::new(c"dup") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    let Some(real) = DUP.get() else {
        return missing();
    };
    if answer::is_gone(fd) {
        return answer::refuse();
    }
    // SAFETY: passes on the caller's arguments.
    let result = retry_when_full(|| unsafe { real(fd) });
    born_from(result, OpenCall::Dup, fd)
}

// SAFETY: the type matches the manual page.
static EVENTFD: Real<unsafe extern "C" fn(c_uint, c_int) -> c_int> =
    unsafe { Real::new(c"eventfd") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn eventfd(value: c_uint, flags: c_int) -> c_int {
    let Some(real) = EVENTFD.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(value, flags) });
    born(fd, OpenCall::Eventfd)
}

// SAFETY: the type matches the manual page.
static EPOLL_CREATE: Real<unsafe extern "C" fn(c_int) -> c_int> =
    unsafe { Real::new(c"epoll_create") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    let Some(real) = EPOLL_CREATE.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(size) });
    born(fd, OpenCall::Epoll)
}

// SAFETY: the type matches the manual page.
static EPOLL_CREATE1: Real<unsafe extern "C" fn(c_int) -> c_int> =
    unsafe { Real::new(c"epoll_create1") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    let Some(real) = EPOLL_CREATE1.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(flags) });
    creator::loop_created();
    born(fd, OpenCall::Epoll)
}

// SAFETY: the type matches the manual page.
static TIMERFD_CREATE: Real<unsafe extern "C" fn(c_int, c_int) -> c_int> =
    unsafe { Real::new(c"timerfd_create") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn timerfd_create(clock: c_int, flags: c_int) -> c_int {
    let Some(real) = TIMERFD_CREATE.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(clock, flags) });
    born(fd, OpenCall::Timerfd)
}

// SAFETY: the type matches the manual page.
static INOTIFY_INIT: Real<unsafe extern "C" fn() -> c_int> = unsafe { Real::new(c"inotify_init") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn inotify_init() -> c_int {
    let Some(real) = INOTIFY_INIT.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real() });
    born(fd, OpenCall::Inotify)
}

// SAFETY: the type matches the manual page.
static INOTIFY_INIT1: Real<unsafe extern "C" fn(c_int) -> c_int> =
    unsafe { Real::new(c"inotify_init1") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn inotify_init1(flags: c_int) -> c_int {
    let Some(real) = INOTIFY_INIT1.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(flags) });
    born(fd, OpenCall::Inotify)
}

// SAFETY: the type matches the manual page.
static FANOTIFY_INIT: Real<unsafe extern "C" fn(c_uint, c_uint) -> c_int> =
    unsafe { Real::new(c"fanotify_init") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fanotify_init(flags: c_uint, events: c_uint) -> c_int {
    let Some(real) = FANOTIFY_INIT.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(flags, events) });
    born(fd, OpenCall::Fanotify)
}

// SAFETY: the type matches the manual page.
static PIDFD_OPEN: Real<unsafe extern "C" fn(c_int, c_uint) -> c_int> =
    unsafe { Real::new(c"pidfd_open") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn pidfd_open(pid: c_int, flags: c_uint) -> c_int {
    let Some(real) = PIDFD_OPEN.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let fd = retry_when_full(|| unsafe { real(pid, flags) });
    born(fd, OpenCall::Pidfd)
}

// SAFETY: the type matches the manual page.
static SIGNALFD: Real<unsafe extern "C" fn(c_int, *const c_void, c_int) -> c_int> =
    unsafe { Real::new(c"signalfd") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn signalfd(fd: c_int, mask: *const c_void, flags: c_int) -> c_int {
    let Some(real) = SIGNALFD.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let result = retry_when_full(|| unsafe { real(fd, mask, flags) });
    // With a number, it changes that descriptor and opens none.
    if fd == -1 {
        born(result, OpenCall::Signalfd);
    }
    result
}

// SAFETY: the type matches the manual page.
static DUP2: Real<unsafe extern "C" fn(c_int, c_int) -> c_int> = unsafe { Real::new(c"dup2") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    let Some(real) = DUP2.get() else {
        return missing();
    };
    if answer::is_gone(fd) {
        return answer::refuse();
    }
    // A duplicate onto itself changes nothing.
    let taken = (fd != to).then(|| protect::claim(to));
    // SAFETY: passes on the caller's arguments.
    let result = unsafe { real(fd, to) };
    if let Some(taken) = taken {
        taken.over(result < 0);
        // This also closes the number's previous descriptor.
        reborn(result, OpenCall::Dup2, fd);
    }
    result
}

// SAFETY: the type matches the manual page.
static DUP3: Real<unsafe extern "C" fn(c_int, c_int, c_int) -> c_int> =
    unsafe { Real::new(c"dup3") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    let Some(real) = DUP3.get() else {
        return missing();
    };
    if answer::is_gone(fd) {
        return answer::refuse();
    }
    // A duplicate onto itself changes nothing.
    let taken = (fd != to).then(|| protect::claim(to));
    // SAFETY: passes on the caller's arguments.
    let result = unsafe { real(fd, to, flags) };
    if let Some(taken) = taken {
        taken.over(result < 0);
        // This also closes the number's previous descriptor.
        reborn(result, OpenCall::Dup2, fd);
    }
    result
}

// SAFETY: the type matches the manual page.
static PIPE: Real<unsafe extern "C" fn(*mut [c_int; 2]) -> c_int> = unsafe { Real::new(c"pipe") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn pipe(fds: *mut [c_int; 2]) -> c_int {
    let Some(real) = PIPE.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let result = retry_when_full(|| unsafe { real(fds) });
    // SAFETY: if the call succeeded, the kernel wrote two numbers there.
    unsafe { two_born(result, fds, OpenCall::Pipe, 0) };
    result
}

// SAFETY: the type matches the manual page.
static PIPE2: Real<unsafe extern "C" fn(*mut [c_int; 2], c_int) -> c_int> =
    unsafe { Real::new(c"pipe2") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn pipe2(fds: *mut [c_int; 2], flags: c_int) -> c_int {
    let Some(real) = PIPE2.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let result = retry_when_full(|| unsafe { real(fds, flags) });
    // SAFETY: if the call succeeded, the kernel wrote two numbers there.
    unsafe { two_born(result, fds, OpenCall::Pipe, 0) };
    result
}

// SAFETY: the type matches the manual page.
static SOCKETPAIR: Real<unsafe extern "C" fn(c_int, c_int, c_int, *mut [c_int; 2]) -> c_int> =
    unsafe { Real::new(c"socketpair") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    fds: *mut [c_int; 2],
) -> c_int {
    let Some(real) = SOCKETPAIR.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let result = retry_when_full(|| unsafe { real(domain, kind, protocol, fds) });
    let more = u64::from(domain.cast_unsigned()) << 32 | u64::from(kind.cast_unsigned());
    // SAFETY: if the call succeeded, the kernel wrote two numbers there.
    unsafe { two_born(result, fds, OpenCall::Socketpair, more) };
    result
}

/// Two descriptors were opened at once, or none.
///
/// # Safety
/// After a result of 0 there must be two numbers.
unsafe fn two_born(result: c_int, fds: *mut [c_int; 2], how: OpenCall, more: u64) {
    let fds = if result == 0 {
        // SAFETY: guaranteed by the caller.
        unsafe { fds.read() }
    } else {
        [-1, -1]
    };
    for fd in fds {
        born_of(fd, how, more);
        if result != 0 {
            return;
        }
    }
}
