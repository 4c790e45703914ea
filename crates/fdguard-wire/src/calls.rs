//! The calls that open, close and use descriptors: the one enumeration of each, for every crate.

use crate::event::PreventedHarm;

/// Which call opened a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum OpenCall {
    /// Unknown: before tracing began, or inside a library.
    #[default]
    Unknown = 0,
    /// `open` and related functions.
    Open,
    /// `creat`.
    Creat,
    /// `socket`.
    Socket,
    /// `socketpair`.
    Socketpair,
    /// `accept`, `accept4`.
    Accept,
    /// `dup`.
    Dup,
    /// `dup2`, `dup3`.
    Dup2,
    /// `fcntl` with `F_DUPFD`.
    Fcntl,
    /// `pipe`, `pipe2`.
    Pipe,
    /// `eventfd`.
    Eventfd,
    /// `epoll_create`, `epoll_create1`.
    Epoll,
    /// `timerfd_create`.
    Timerfd,
    /// `signalfd`.
    Signalfd,
    /// `inotify_init`, `inotify_init1`.
    Inotify,
    /// `fanotify_init`.
    Fanotify,
    /// `memfd_create`.
    Memfd,
    /// `pidfd_open`.
    Pidfd,
    /// `fopen` and related functions.
    Fopen,
    /// `freopen`.
    Freopen,
    /// `opendir`.
    Opendir,
    /// `mkstemp` and related functions.
    Mkstemp,
    /// `tmpfile`.
    Tmpfile,
    /// `popen`.
    Popen,
    /// `posix_openpt`, `getpt`.
    Openpt,
    /// `openpty`, `forkpty`.
    Openpty,
    /// `shm_open`.
    ShmOpen,
    /// `mq_open`.
    MqOpen,
    /// Received with `recvmsg`.
    Received,
    /// A system call by number that has no other name here.
    Syscall,
}

/// Each open call with its name, in the order of their codes.
const OPEN_NAMES: &[(OpenCall, &str)] = &[
    (OpenCall::Unknown, "unknown"),
    (OpenCall::Open, "open"),
    (OpenCall::Creat, "creat"),
    (OpenCall::Socket, "socket"),
    (OpenCall::Socketpair, "socketpair"),
    (OpenCall::Accept, "accept"),
    (OpenCall::Dup, "dup"),
    (OpenCall::Dup2, "dup2"),
    (OpenCall::Fcntl, "fcntl"),
    (OpenCall::Pipe, "pipe"),
    (OpenCall::Eventfd, "eventfd"),
    (OpenCall::Epoll, "epoll_create"),
    (OpenCall::Timerfd, "timerfd_create"),
    (OpenCall::Signalfd, "signalfd"),
    (OpenCall::Inotify, "inotify_init"),
    (OpenCall::Fanotify, "fanotify_init"),
    (OpenCall::Memfd, "memfd_create"),
    (OpenCall::Pidfd, "pidfd_open"),
    (OpenCall::Fopen, "fopen"),
    (OpenCall::Freopen, "freopen"),
    (OpenCall::Opendir, "opendir"),
    (OpenCall::Mkstemp, "mkstemp"),
    (OpenCall::Tmpfile, "tmpfile"),
    (OpenCall::Popen, "popen"),
    (OpenCall::Openpt, "posix_openpt"),
    (OpenCall::Openpty, "openpty"),
    (OpenCall::ShmOpen, "shm_open"),
    (OpenCall::MqOpen, "mq_open"),
    (OpenCall::Received, "recvmsg"),
    (OpenCall::Syscall, "syscall"),
];

impl OpenCall {
    /// The call with this code; codes of a later version are unknown.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        let found = OPEN_NAMES.get(usize::from(code));
        found.map_or(Self::Unknown, |(call, _)| *call)
    }

    /// The call with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        let found = OPEN_NAMES.iter().find(|(_, known)| *known == name);
        found.map_or(Self::Unknown, |(call, _)| *call)
    }

    /// The name of the call.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = OPEN_NAMES.get(self as usize);
        found.map_or("unknown", |(_, name)| name)
    }
}

/// The call, or other cause, that closed a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CloseCall {
    /// `close`, `fclose`, `closedir`, …
    Close = 0,
    /// `dup2` replaced it: the number now means the new descriptor.
    Dup2,
    /// `close_range`.
    CloseRange,
    /// `FD_CLOEXEC`.
    Exec,
    /// The end of the process.
    Exit,
    /// Unknown: inside a library, or the event is missing.
    Unknown,
}

/// Each close call with its name, in the order of their codes.
const CLOSE_NAMES: &[(CloseCall, &str)] = &[
    (CloseCall::Close, "close"),
    (CloseCall::Dup2, "dup2"),
    (CloseCall::CloseRange, "close_range"),
    (CloseCall::Exec, "exec"),
    (CloseCall::Exit, "exit"),
    (CloseCall::Unknown, "unknown"),
];

impl CloseCall {
    /// The call with this code, without the bit of [`PreventedHarm`].
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        let found = CLOSE_NAMES.get(usize::from(code & !PreventedHarm::BIT));
        found.map_or(Self::Unknown, |(call, _)| *call)
    }

    /// The call with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        let found = CLOSE_NAMES.iter().find(|(_, known)| *known == name);
        found.map_or(Self::Unknown, |(call, _)| *call)
    }

    /// The name of the call.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = CLOSE_NAMES.get(self as usize);
        found.map_or("unknown", |(_, name)| name)
    }
}

/// Another call on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FdCall {
    /// A call that queries more than it changes (`fstat`, `fcntl`, `epoll_ctl`, …): programs probe
    /// with it.
    Other = 0,
    /// `read`, `pread`, `readv`.
    Read,
    /// `write`, `pwrite`, `writev`.
    Write,
    /// `recv`, `recvfrom`, `recvmsg`.
    Recv,
    /// `send`, `sendto`, `sendmsg`.
    Send,
    /// `poll`, `ppoll`, `select` with this number in its set.
    Poll,
    /// `epoll_wait` on this instance.
    EpollWait,
    /// `connect`.
    Connect,
    /// `accept`.
    Accept,
    /// `fsync`, `fdatasync`.
    Fsync,
    /// `ftruncate`.
    Truncate,
}

/// Each call with the name of the most basic call of its kind, in the order of their codes.
const FD_NAMES: &[(FdCall, &str)] = &[
    (FdCall::Other, "call"),
    (FdCall::Read, "read"),
    (FdCall::Write, "write"),
    (FdCall::Recv, "recv"),
    (FdCall::Send, "send"),
    (FdCall::Poll, "poll"),
    (FdCall::EpollWait, "epoll_wait"),
    (FdCall::Connect, "connect"),
    (FdCall::Accept, "accept"),
    (FdCall::Fsync, "fsync"),
    (FdCall::Truncate, "ftruncate"),
];

impl FdCall {
    /// The bit in a code that marks a number closed during the call.
    pub const TORN: u8 = 0x80;

    /// The call with this code, without the bits of [`FdCall::TORN`] and [`PreventedHarm`].
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        let found = FD_NAMES.get(usize::from(code & !(Self::TORN | PreventedHarm::BIT)));
        found.map_or(Self::Other, |(call, _)| *call)
    }

    /// The call with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        let found = FD_NAMES.iter().find(|(_, known)| *known == name);
        found.map_or(Self::Other, |(call, _)| *call)
    }

    /// The name of the most basic call of its kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = FD_NAMES.get(self as usize);
        found.map_or("call", |(_, name)| name)
    }

    /// Whether it writes bytes to the descriptor.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Send)
    }

    /// Whether it works on sockets only.
    #[must_use]
    pub fn needs_socket(self) -> bool {
        matches!(self, Self::Recv | Self::Send | Self::Connect | Self::Accept)
    }
}

#[cfg(test)]
mod tests {
    use super::{CLOSE_NAMES, CloseCall, FD_NAMES, FdCall, OPEN_NAMES, OpenCall};

    #[test]
    fn every_open_call_has_the_code_of_its_place() {
        for (index, (call, name)) in OPEN_NAMES.iter().enumerate() {
            assert_eq!(*call as usize, index);
            assert_eq!(call.name(), *name);
            assert_eq!(OpenCall::from_code(u8::try_from(index).unwrap()), *call);
            assert_eq!(OpenCall::from_name(name), *call);
        }
        assert_eq!(OpenCall::from_code(255), OpenCall::Unknown);
    }

    #[test]
    fn every_close_call_and_every_other_call_has_the_code_of_its_place() {
        for (index, (call, name)) in CLOSE_NAMES.iter().enumerate() {
            assert_eq!(*call as usize, index);
            assert_eq!(CloseCall::from_code(u8::try_from(index).unwrap()), *call);
            assert_eq!(CloseCall::from_name(name), *call);
        }
        for (index, (call, name)) in FD_NAMES.iter().enumerate() {
            assert_eq!(*call as usize, index);
            assert_eq!(FdCall::from_code(u8::try_from(index).unwrap()), *call);
            assert_eq!(FdCall::from_name(name), *call);
        }
    }
}
