//! The class of a descriptor, as far as the call that opened it determines it.

use std::collections::HashMap;

use fdguard_core::{Class, Fd, TcpState};
use fdguard_wire::{EventRecord, OpenCall};

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
    /// A number was opened.
    pub(crate) fn open(&mut self, event: &EventRecord) -> Option<Class> {
        let class = self.class(OpenCall::from_code(event.code), event.more[0]);
        match &class {
            Some(class) => self.open.insert(event.fd, class.clone()),
            None => self.open.remove(&event.fd),
        };
        class
    }

    /// A number was closed.
    pub(crate) fn close(&mut self, fd: Fd) {
        self.open.remove(&fd);
    }

    /// All numbers of a range were closed.
    pub(crate) fn close_range(&mut self, first: Fd, last: Fd) {
        self.open.retain(|fd, _| !(first..=last).contains(fd));
    }

    fn class(&self, call: OpenCall, more: u64) -> Option<Class> {
        let source = || {
            let from = u32::try_from(more.checked_sub(1)?).ok()?;
            self.open.get(&from).cloned()
        };
        Some(match call {
            OpenCall::Socket | OpenCall::Socketpair => return socket(more >> 32, more & SOCK_TYPE),
            OpenCall::Accept => match source()? {
                Class::Tcp(_) => Class::Tcp(TcpState::Established),
                other => other,
            },
            OpenCall::Dup | OpenCall::Dup2 | OpenCall::Fcntl => return source(),
            OpenCall::Open
            | OpenCall::Creat
            | OpenCall::Fopen
            | OpenCall::Freopen
            | OpenCall::Tmpfile
            | OpenCall::ShmOpen => Class::Regular,
            OpenCall::Openpty => Class::PtyMaster,
            _ => return Class::from_call(call),
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
