//! The class of a descriptor, as far as the call that opened it determines it.

use std::collections::HashMap;

use fdguard_core::{Class, Fd, TcpState};
use fdguard_wire::{EventRecord, How};

const AF_UNIX: u64 = 1;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
const AF_NETLINK: u64 = 16;
const AF_PACKET: u64 = 17;
const AF_VSOCK: u64 = 40;
const SOCK_TYPE: u64 = 0xf;
const SOCK_STREAM: u64 = 1;
const SOCK_DGRAM: u64 = 2;
const SOCK_RAW: u64 = 3;

/// The classes of the open descriptors of one process.
#[derive(Debug, Default)]
pub(crate) struct CallClasses {
    open: HashMap<Fd, Class>,
}

impl CallClasses {
    /// A number was given out.
    pub(crate) fn open(&mut self, event: &EventRecord) -> Option<Class> {
        let class = self.class(How::of(event.code), event.more[0]);
        match &class {
            Some(class) => self.open.insert(event.fd, class.clone()),
            None => self.open.remove(&event.fd),
        };
        class
    }

    /// A number was given back.
    pub(crate) fn close(&mut self, fd: Fd) {
        self.open.remove(&fd);
    }

    /// All numbers of a range were given back.
    pub(crate) fn close_range(&mut self, first: Fd, last: Fd) {
        self.open.retain(|fd, _| !(first..=last).contains(fd));
    }

    fn class(&self, how: How, more: u64) -> Option<Class> {
        let source = || {
            let from = u32::try_from(more.checked_sub(1)?).ok()?;
            self.open.get(&from).cloned()
        };
        Some(match how {
            How::Socket | How::Socketpair => return socket(more >> 32, more & SOCK_TYPE),
            How::Accept => match source()? {
                Class::Tcp(_) => Class::Tcp(TcpState::Established),
                other => other,
            },
            How::Dup | How::Dup2 | How::Fcntl => return source(),
            How::Open
            | How::Creat
            | How::Fopen
            | How::Freopen
            | How::Mkstemp
            | How::Tmpfile
            | How::ShmOpen => Class::Regular,
            How::Opendir => Class::Directory,
            How::Pipe | How::Popen => Class::Pipe,
            How::Eventfd => Class::Eventfd,
            How::Epoll => Class::Eventpoll,
            How::Timerfd => Class::Timerfd,
            How::Signalfd => Class::Signalfd,
            How::Inotify => Class::Inotify,
            How::Fanotify => Class::Fanotify,
            How::Memfd => Class::Memfd,
            How::Pidfd => Class::Pidfd,
            How::Openpt | How::Openpty => Class::PtyMaster,
            How::Unknown | How::MqOpen | How::Received | How::Syscall => return None,
        })
    }
}

fn socket(domain: u64, kind: u64) -> Option<Class> {
    Some(match (domain, kind) {
        (AF_UNIX, _) => Class::Unix,
        (AF_INET | AF_INET6, SOCK_STREAM) => Class::Tcp(TcpState::Unbound),
        (AF_INET | AF_INET6, SOCK_DGRAM) => Class::Udp,
        (AF_INET | AF_INET6, SOCK_RAW) => Class::Raw,
        (AF_NETLINK, _) => Class::Netlink,
        (AF_PACKET, _) => Class::Packet,
        (AF_VSOCK, _) => Class::Vsock,
        _ => return None,
    })
}
