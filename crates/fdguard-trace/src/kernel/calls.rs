//! What the system calls that the kernel reports are called elsewhere in fdguard.

use fdguard_wire::{CloseCall, FdCall, OpenCall};

/// The call that opened a descriptor, by its number on x86-64.
pub(super) fn open_call(number: u32) -> OpenCall {
    match number {
        2 | 257 | 304 | 437 => OpenCall::Open,
        85 => OpenCall::Creat,
        41 => OpenCall::Socket,
        53 => OpenCall::Socketpair,
        43 | 288 => OpenCall::Accept,
        32 => OpenCall::Dup,
        33 | 292 => OpenCall::Dup2,
        72 => OpenCall::Fcntl,
        22 | 293 => OpenCall::Pipe,
        284 | 290 => OpenCall::Eventfd,
        213 | 291 => OpenCall::Epoll,
        283 => OpenCall::Timerfd,
        282 | 289 => OpenCall::Signalfd,
        253 | 294 => OpenCall::Inotify,
        300 => OpenCall::Fanotify,
        319 => OpenCall::Memfd,
        // clone and clone3 with CLONE_PIDFD.
        434 | 56 | 435 => OpenCall::Pidfd,
        240 => OpenCall::MqOpen,
        47 | 299 => OpenCall::Received,
        _ => OpenCall::Syscall,
    }
}

/// Whether its opens are found by comparing the table before and after: another thread may have
/// opened them meanwhile.
pub(super) fn is_by_comparison(number: u32) -> bool {
    // ioctl, bpf and io_uring_enter.
    matches!(number, 16 | 321 | 426)
}

/// What [`EventKind::Open`](fdguard_wire::EventKind::Open) carries about the call.
pub(super) fn open_detail(call: OpenCall, arguments: [u64; 3]) -> u64 {
    match call {
        OpenCall::Socket | OpenCall::Socketpair => {
            (arguments[0] & 0xffff_ffff) << 32 | (arguments[1] & 0xffff_ffff)
        }
        OpenCall::Accept | OpenCall::Dup | OpenCall::Dup2 | OpenCall::Fcntl => {
            (arguments[0] & 0xffff_ffff) + 1
        }
        _ => 0,
    }
}

/// The call that closed a descriptor.
pub(super) fn close_call(number: u32) -> CloseCall {
    match number {
        3 => CloseCall::Close,
        33 | 292 => CloseCall::Dup2,
        436 => CloseCall::CloseRange,
        59 | 322 => CloseCall::Exec,
        60 | 231 => CloseCall::Exit,
        _ => CloseCall::Unknown,
    }
}

/// Another call on a descriptor.
pub(super) fn fd_call(number: u32) -> FdCall {
    match number {
        0 | 17 | 19 | 295 | 327 => FdCall::Read,
        1 | 18 | 20 | 296 | 328 => FdCall::Write,
        45 | 47 | 299 => FdCall::Recv,
        44 | 46 | 307 => FdCall::Send,
        7 | 23 | 270 | 271 => FdCall::Poll,
        232 | 281 | 441 => FdCall::EpollWait,
        42 => FdCall::Connect,
        43 | 288 => FdCall::Accept,
        74 | 75 => FdCall::Fsync,
        77 => FdCall::Truncate,
        _ => FdCall::Other,
    }
}

#[cfg(test)]
mod tests {
    use fdguard_wire::{CloseCall, FdCall, OpenCall};

    use super::{close_call, fd_call, open_call, open_detail};

    #[test]
    fn calls_have_the_names_of_the_library() {
        assert_eq!(open_call(257), OpenCall::Open);
        assert_eq!(open_call(288), OpenCall::Accept);
        assert_eq!(open_call(425), OpenCall::Syscall);
        assert_eq!(close_call(3), CloseCall::Close);
        assert_eq!(close_call(292), CloseCall::Dup2);
        assert_eq!(fd_call(1), FdCall::Write);
        assert_eq!(fd_call(5), FdCall::Other);
    }

    #[test]
    fn a_socket_carries_its_domain_and_a_duplicate_its_original() {
        let socket = open_detail(OpenCall::Socket, [2, 0x80001, 6]);
        assert_eq!((socket >> 32, socket & 0xf), (2, 1));
        assert_eq!(open_detail(OpenCall::Dup2, [7, 9, 0]), 8);
        assert_eq!(open_detail(OpenCall::Open, [1, 2, 3]), 0);
    }
}
