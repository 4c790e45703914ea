//! Identifies sockets: by `sock_diag` in the target's network namespace, otherwise by
//! `/proc/PID/net`.

use std::ffi::CStr;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fdguard_core::detail::InetPeer;
use fdguard_core::{Detail, Text};
use fdguard_proc::net::{self, InetKind, SocketRecord};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::LinkNameSpaceType;

use super::socket_entry::SocketDescription;
use super::{files, socket_entry};
use crate::parse::diag::{self, DiagEnd, DiagTable};
use crate::workers;

/// The addresses of a TCP connection: this end and the other one.
pub(super) type ConnectionEnds = (SocketAddr, SocketAddr);

/// The requested sockets of one network namespace.
#[derive(Debug, Default)]
pub(super) struct SocketTable {
    records: FxHashMap<u64, SocketRecord>,
    /// The names of network interfaces by index, for sockets bound to one.
    interfaces: FxHashMap<u32, String>,
    /// TCP connections within this host: the inode by its two addresses.
    connections: FxHashMap<ConnectionEnds, u64>,
    /// Whether the tables were read at all.
    pub(super) complete: bool,
}

/// The kinds that netlink can dump, most common first: the search ends when all are found.
const TABLES: [DiagTable; 5] = [
    DiagTable::Unix,
    DiagTable::Tcp4,
    DiagTable::Tcp6,
    DiagTable::Udp4,
    DiagTable::Udp6,
];

impl SocketTable {
    /// Queries netlink in fdguard's namespace, for these inodes or, without any, for all.
    pub(super) fn by_netlink(wanted: Option<&FxHashSet<u64>>) -> Result<Self, Errno> {
        let family = AddressFamily::NETLINK;
        let protocol = Some(rustix::net::netlink::SOCK_DIAG);
        let socket =
            rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        let mut table = Self {
            complete: true,
            ..Self::default()
        };
        let mut missing = wanted.map_or(usize::MAX, FxHashSet::len);
        let mut buffer = vec![0; 1 << 17];
        for kind in TABLES {
            // The other end of a connection may be in the table of the other family.
            if missing == 0 && !(kind == DiagTable::Tcp6 && table.has_lone_end()) {
                break;
            }
            let mut keep = |(ino, record): net::SocketRow| {
                let is_wanted = wanted.is_none_or(|wanted| wanted.contains(&ino));
                missing = missing.saturating_sub(usize::from(is_wanted));
                let ends = local_connection(&record);
                table.connections.extend(ends.map(|ends| (ends, ino)));
                // Keep all Unix sockets: the name of a connection is at its other end.
                if is_wanted || kind == DiagTable::Unix {
                    table.records.insert(ino, record);
                }
            };
            match dump(&socket, kind, &mut buffer, &mut keep) {
                // The text tables lack the peers of Unix sockets: the caller reports that.
                Err(Errno::NOENT) if kind != DiagTable::Unix => {
                    text_rows(kind).into_iter().for_each(keep);
                }
                dumped => dumped?,
            }
        }
        Ok(table)
    }

    /// Queries netlink in the namespace behind `netns`, from a thread that enters it and exits
    /// there.
    pub(super) fn by_netlink_in(
        netns: BorrowedFd<'_>,
        wanted: Option<&FxHashSet<u64>>,
    ) -> Result<Self, Errno> {
        inside(netns, || Self::by_netlink(wanted))
    }

    /// All sockets of a namespace to which no process at hand belongs.
    pub(super) fn whole(netns: BorrowedFd<'_>, proc: BorrowedFd<'_>) -> Result<Self, Errno> {
        inside(netns, || {
            let mut table = Self::by_netlink(None)?;
            // A thread's tables are those of its namespace.
            if let Ok(base) = files::open_base_at(proc, c"thread-self") {
                table.add_rare(base.as_fd(), None);
            }
            Ok(table)
        })
    }

    /// Reads the text tables under a process's directory: slower, without peers, but without
    /// privilege.
    pub(super) fn by_text(base: BorrowedFd<'_>, wanted: &FxHashSet<u64>) -> Self {
        let mut table = Self::default();
        table.add_inet_text(base, wanted);
        if let Ok(bytes) = files::read(base, c"net/unix") {
            table
                .records
                .extend(net::unix(&bytes).filter(|(ino, _)| wanted.contains(ino)));
        }
        table
    }

    fn add_inet_text(&mut self, base: BorrowedFd<'_>, wanted: &FxHashSet<u64>) {
        for (name, kind) in [
            (c"net/tcp", InetKind::Tcp),
            (c"net/tcp6", InetKind::Tcp),
            (c"net/udp", InetKind::Udp),
            (c"net/udp6", InetKind::Udp),
        ] {
            if let Ok(bytes) = files::read(base, name) {
                self.complete = true;
                for (ino, record) in net::inet(kind, &bytes) {
                    let ends = local_connection(&record);
                    self.connections.extend(ends.map(|ends| (ends, ino)));
                    if wanted.contains(&ino) {
                        self.records.insert(ino, record);
                    }
                }
            }
        }
    }

    /// Adds the rare families, which only the text tables have on every kernel: for these inodes
    /// or, without any, for all.
    pub(super) fn add_rare(&mut self, base: BorrowedFd<'_>, wanted: Option<&FxHashSet<u64>>) {
        let is_wanted = |ino: &u64| wanted.is_none_or(|wanted| wanted.contains(ino));
        if wanted.is_some_and(|wanted| wanted.iter().all(|ino| self.records.contains_key(ino))) {
            return;
        }
        for (name, rows) in RARE {
            if let Ok(bytes) = files::read(base, *name) {
                let rows = rows(&bytes).into_iter();
                self.records.extend(rows.filter(|(ino, _)| is_wanted(ino)));
            }
        }
        let bound = |record: &SocketRecord| matches!(record, SocketRecord::Packet { interface, .. } if *interface != 0);
        if self.records.values().any(bound) {
            let text = files::read(base, c"net/igmp").unwrap_or_default();
            self.interfaces.extend(net::interfaces(&text));
        }
    }

    /// Everything that was read.
    pub(super) fn into_rows(self) -> impl Iterator<Item = net::SocketRow> {
        self.records.into_iter()
    }

    /// One socket; `None` if the tables do not have it.
    pub(super) fn describe(&self, ino: u64) -> Option<SocketDescription> {
        let record = self.records.get(&ino)?;
        let unix_path = |ino| self.unix_path(ino);
        let interface = |index| self.interfaces.get(&index).cloned();
        let mut known = socket_entry::by_record(ino, record, unix_path, interface);
        if let (Some(ino), Detail::Inet(inet)) = (self.other_end(record), &mut known.detail) {
            inet.peer = Some(InetPeer {
                ino,
                ..InetPeer::default()
            });
        }
        Some(known)
    }

    /// The socket at the other end of a connection within this host.
    fn other_end(&self, record: &SocketRecord) -> Option<u64> {
        let (local, remote) = local_connection(record)?;
        self.connections.get(&(remote, local)).copied()
    }

    /// Whether the other end of a connection is still missing.
    fn has_lone_end(&self) -> bool {
        let lone = |record: &SocketRecord| {
            local_connection(record).is_some() && self.other_end(record).is_none()
        };
        self.records.values().any(lone)
    }

    fn unix_path(&self, ino: u64) -> Option<Text> {
        match self.records.get(&ino)? {
            SocketRecord::Unix { path, .. } => path.as_deref().map(Text::from),
            _ => None,
        }
    }
}

/// The two addresses of a TCP connection whose ends are both on this host. An outgoing connection
/// has the address of an interface at one end, and a different one at the other.
pub(super) fn local_connection(record: &SocketRecord) -> Option<ConnectionEnds> {
    let SocketRecord::Inet {
        kind: InetKind::Tcp,
        local,
        remote,
        ..
    } = record
    else {
        return None;
    };
    let plain = |address: &SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (local, remote) = (plain(local), plain(remote));
    let both_loopback = local.ip().is_loopback() && remote.ip().is_loopback();
    let is_local = remote.port() != 0 && (both_loopback || local.ip() == remote.ip());
    is_local.then_some((local, remote))
}

/// A text table and how its rows are read.
type TextTable = (&'static CStr, fn(&[u8]) -> Vec<net::SocketRow>);

const RARE: &[TextTable] = &[
    (c"net/netlink", |bytes| net::netlink(bytes).collect()),
    (c"net/packet", |bytes| net::packet(bytes).collect()),
    (c"net/raw", |bytes| inet_rows(InetKind::Raw, bytes)),
    (c"net/raw6", |bytes| inet_rows(InetKind::Raw, bytes)),
    (c"net/udplite", |bytes| inet_rows(InetKind::UdpLite, bytes)),
    (c"net/udplite6", |bytes| inet_rows(InetKind::UdpLite, bytes)),
    (c"net/icmp", |bytes| inet_rows(InetKind::Ping, bytes)),
    (c"net/icmp6", |bytes| inet_rows(InetKind::Ping, bytes)),
];

fn inet_rows(kind: InetKind, bytes: &[u8]) -> Vec<net::SocketRow> {
    net::inet(kind, bytes).collect()
}

/// Runs in another network namespace, on a thread that enters it and exits there.
fn inside<T: Send>(
    netns: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<T, Errno> + Send,
) -> Result<T, Errno> {
    let entered = || {
        rustix::thread::move_into_link_name_space(netns, Some(LinkNameSpaceType::Network))?;
        work()
    };
    workers::beside(Some(entered), || ())
        .0
        .unwrap_or(Err(Errno::AGAIN))
}

fn dump(
    socket: &OwnedFd,
    table: DiagTable,
    buffer: &mut [u8],
    mut row: impl FnMut(net::SocketRow),
) -> Result<(), Errno> {
    rustix::net::send(socket, &table.request(), SendFlags::empty())?;
    loop {
        let (length, _) = rustix::net::recv(socket.as_fd(), &mut *buffer, RecvFlags::empty())?;
        match diag::read_datagram(table, &buffer[..length], &mut row) {
            DiagEnd::More if length > 0 => {}
            // NOENT: a kernel that lacks the module for this table (`tcp_diag`, `udp_diag`).
            DiagEnd::Refused(code) => return Err(Errno::from_raw_os_error(code)),
            DiagEnd::More | DiagEnd::Done => return Ok(()),
        }
    }
}

/// The same table as text, in the namespace of this thread.
fn text_rows(table: DiagTable) -> Vec<net::SocketRow> {
    let (name, kind) = match table {
        DiagTable::Tcp4 => ("tcp", InetKind::Tcp),
        DiagTable::Tcp6 => ("tcp6", InetKind::Tcp),
        DiagTable::Udp4 => ("udp", InetKind::Udp),
        DiagTable::Udp6 => ("udp6", InetKind::Udp),
        DiagTable::Unix => return Vec::new(),
    };
    // A machine without IPv6 has no such table.
    let bytes = std::fs::read(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    inet_rows(kind, &bytes)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use fdguard_proc::net::{SocketRecord, SocketRow};

    use super::{DiagTable, text_rows};

    #[test]
    fn a_kernel_without_a_diag_module_has_text_tables() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (table, at) in [
            (DiagTable::Tcp4, tcp.local_addr().unwrap()),
            (DiagTable::Udp4, udp.local_addr().unwrap()),
        ] {
            let rows = text_rows(table);
            let is_it = |(_, record): &SocketRow| matches!(record, SocketRecord::Inet { local, .. } if *local == at);
            assert!(rows.iter().any(is_it), "{table:?}: {rows:?}");
        }
    }
}
