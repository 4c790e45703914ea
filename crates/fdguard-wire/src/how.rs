//! The calls that open.

/// Which call opened a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum How {
    /// Not known.
    Unknown = 0,
    /// `open` and its kin.
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
    /// `fopen` and its kin.
    Fopen,
    /// `freopen`.
    Freopen,
    /// `opendir`.
    Opendir,
    /// `mkstemp` and its kin.
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
    /// A system call by its number that has no other name here.
    Syscall,
}

/// Every one of them with its name, in the order of their numbers.
const NAMES: &[(How, &str)] = &[
    (How::Unknown, "unknown"),
    (How::Open, "open"),
    (How::Creat, "creat"),
    (How::Socket, "socket"),
    (How::Socketpair, "socketpair"),
    (How::Accept, "accept"),
    (How::Dup, "dup"),
    (How::Dup2, "dup2"),
    (How::Fcntl, "fcntl"),
    (How::Pipe, "pipe"),
    (How::Eventfd, "eventfd"),
    (How::Epoll, "epoll_create"),
    (How::Timerfd, "timerfd_create"),
    (How::Signalfd, "signalfd"),
    (How::Inotify, "inotify_init"),
    (How::Fanotify, "fanotify_init"),
    (How::Memfd, "memfd_create"),
    (How::Pidfd, "pidfd_open"),
    (How::Fopen, "fopen"),
    (How::Freopen, "freopen"),
    (How::Opendir, "opendir"),
    (How::Mkstemp, "mkstemp"),
    (How::Tmpfile, "tmpfile"),
    (How::Popen, "popen"),
    (How::Openpt, "posix_openpt"),
    (How::Openpty, "openpty"),
    (How::ShmOpen, "shm_open"),
    (How::MqOpen, "mq_open"),
    (How::Received, "recvmsg"),
    (How::Syscall, "syscall"),
];

impl How {
    /// The one of this number; a number of a later version is not known.
    #[must_use]
    pub fn of(number: u8) -> Self {
        let found = NAMES.get(usize::from(number));
        found.map_or(Self::Unknown, |(how, _)| *how)
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found.map_or(Self::Unknown, |(how, _)| *how)
    }

    /// The name of the call.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = NAMES.get(self as usize);
        found.map_or("unknown", |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::{How, NAMES};

    #[test]
    fn every_number_stands_for_the_call_at_its_place() {
        for (index, (how, name)) in NAMES.iter().enumerate() {
            assert_eq!(*how as usize, index);
            assert_eq!(how.name(), *name);
            assert_eq!(How::of(u8::try_from(index).unwrap()), *how);
            assert_eq!(How::named(name), *how);
        }
        assert_eq!(How::of(255), How::Unknown);
    }
}
