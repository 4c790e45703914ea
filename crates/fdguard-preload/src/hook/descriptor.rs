//! Descriptors without a name: sockets, pipes, duplicates, events.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_uint, c_void};

use fdguard_wire::OpenCall;

use super::opens;
use super::retry::{open, retry_when_full};
use crate::creator;
use crate::protect::{self, answer};
use crate::record::{born, born_from, born_of, reborn, socket_bits};

opens! { SOCKET, c"socket", fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int,
|call| born_of(retry_when_full(call), OpenCall::Socket, socket_bits(domain, kind)) }
opens! { EVENTFD, c"eventfd", fn eventfd(value: c_uint, flags: c_int) -> c_int, |call| open(call, OpenCall::Eventfd) }
opens! { EPOLL_CREATE, c"epoll_create", fn epoll_create(size: c_int) -> c_int, |call| open(call, OpenCall::Epoll) }
opens! { EPOLL_CREATE1, c"epoll_create1", fn epoll_create1(flags: c_int) -> c_int, |call| event_loop(call) }
opens! { TIMERFD_CREATE, c"timerfd_create",
fn timerfd_create(clock: c_int, flags: c_int) -> c_int, |call| open(call, OpenCall::Timerfd) }
opens! { INOTIFY_INIT, c"inotify_init", fn inotify_init() -> c_int, |call| open(call, OpenCall::Inotify) }
opens! { INOTIFY_INIT1, c"inotify_init1", fn inotify_init1(flags: c_int) -> c_int, |call| open(call, OpenCall::Inotify) }
opens! { FANOTIFY_INIT, c"fanotify_init",
fn fanotify_init(flags: c_uint, events: c_uint) -> c_int, |call| open(call, OpenCall::Fanotify) }
opens! { PIDFD_OPEN, c"pidfd_open", fn pidfd_open(pid: c_int, flags: c_uint) -> c_int, |call| open(call, OpenCall::Pidfd) }
opens! { SIGNALFD, c"signalfd",
fn signalfd(fd: c_int, mask: *const c_void, flags: c_int) -> c_int, |call| signals(call, fd) }
opens! { DUP, c"dup", fn dup(fd: c_int) -> c_int, |call| duplicate(call, fd) }
opens! { DUP2, c"dup2", fn dup2(fd: c_int, to: c_int) -> c_int, |call| duplicate_to(call, fd, to) }
opens! { DUP3, c"dup3", fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int, |call| duplicate_to(call, fd, to) }
opens! { PIPE, c"pipe", fn pipe(fds: *mut [c_int; 2]) -> c_int, |call| pair(call, fds, OpenCall::Pipe, 0) }
opens! { PIPE2, c"pipe2", fn pipe2(fds: *mut [c_int; 2], flags: c_int) -> c_int, |call| pair(call, fds, OpenCall::Pipe, 0) }
opens! { SOCKETPAIR, c"socketpair",
fn socketpair(domain: c_int, kind: c_int, protocol: c_int, fds: *mut [c_int; 2]) -> c_int,
|call| pair(call, fds, OpenCall::Socketpair, socket_bits(domain, kind)) }

#[inline]
fn event_loop(call: impl Fn() -> c_int) -> c_int {
    let fd = retry_when_full(call);
    creator::loop_created();
    born(fd, OpenCall::Epoll)
}

/// With a number, it changes that descriptor and opens none.
#[inline]
fn signals(call: impl Fn() -> c_int, fd: c_int) -> c_int {
    let result = retry_when_full(call);
    if fd == -1 {
        born(result, OpenCall::Signalfd);
    }
    result
}

#[inline]
fn duplicate(call: impl Fn() -> c_int, fd: c_int) -> c_int {
    if answer::is_gone(fd) {
        return answer::refuse();
    }
    born_from(retry_when_full(call), OpenCall::Dup, fd)
}

/// Duplicates to a given number.
#[inline]
fn duplicate_to(call: impl Fn() -> c_int, fd: c_int, to: c_int) -> c_int {
    if answer::is_gone(fd) {
        return answer::refuse();
    }
    // A duplicate onto itself changes nothing.
    let taken = (fd != to).then(|| protect::claim(to));
    let result = call();
    if let Some(taken) = taken {
        taken.over(result < 0);
        // This also closes the number's previous descriptor.
        reborn(result, OpenCall::Dup2, fd);
    }
    result
}

/// Opens two descriptors at once, or none.
#[inline]
fn pair(call: impl Fn() -> c_int, fds: *mut [c_int; 2], how: OpenCall, more: u64) -> c_int {
    let result = retry_when_full(call);
    if result == 0 {
        // SAFETY: the call succeeded, so the kernel wrote two numbers there.
        let [first, second] = unsafe { fds.read() };
        born_of(first, how, more);
        born_of(second, how, more);
    } else {
        born_of(-1, how, more);
    }
    result
}
