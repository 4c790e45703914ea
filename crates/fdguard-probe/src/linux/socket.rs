//! What sockets are: by `sock_diag` in the target's network namespace, else by `/proc/PID/net`.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fdguard_core::detail::{Inet, Socket, Unix, UnixPeer};
use fdguard_core::{Class, Detail, FdEntry, TcpState, Text};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::LinkNameSpaceType;

use super::files;
use crate::parse::diag::{self, End, Table};
use crate::parse::net::{self, InetKind, SocketRecord};
use crate::workers;

/// The sockets of one network namespace, as far as anybody asked for them.
#[derive(Debug, Default)]
pub(super) struct SocketTable {
    records: FxHashMap<u64, SocketRecord>,
    /// Whether the tables were read at all.
    pub(super) complete: bool,
}

/// The kinds that netlink can dump, most common first: the search ends when all are found.
const TABLES: [Table; 5] = [
    Table::Unix,
    Table::Tcp4,
    Table::Tcp6,
    Table::Udp4,
    Table::Udp6,
];

impl SocketTable {
    /// Asks netlink in our own namespace, for these inodes or, without any, for all there are.
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
            if missing == 0 {
                break;
            }
            dump(&socket, kind, &mut buffer, |(ino, record)| {
                let is_wanted = wanted.is_none_or(|wanted| wanted.contains(&ino));
                missing = missing.saturating_sub(usize::from(is_wanted));
                // Unix sockets are all kept: the name of a connection stands at its other end.
                if is_wanted || kind == Table::Unix {
                    table.records.insert(ino, record);
                }
            })?;
        }
        Ok(table)
    }

    /// Asks netlink in the namespace behind `netns`, from a thread that enters it and ends there.
    pub(super) fn by_netlink_in(
        netns: BorrowedFd<'_>,
        wanted: &FxHashSet<u64>,
    ) -> Result<Self, Errno> {
        let inside = || {
            rustix::thread::move_into_link_name_space(netns, Some(LinkNameSpaceType::Network))?;
            Self::by_netlink(Some(wanted))
        };
        workers::beside(Some(inside), || ())
            .0
            .unwrap_or(Err(Errno::AGAIN))
    }

    /// Reads the text tables under a process's directory: slower, without peers, but without privilege.
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
                self.records
                    .extend(net::inet(kind, &bytes).filter(|(ino, _)| wanted.contains(ino)));
            }
        }
    }

    /// Adds the rare families, which only the text tables know on every kernel.
    pub(super) fn add_rare(&mut self, base: BorrowedFd<'_>, wanted: &FxHashSet<u64>) {
        if wanted.iter().all(|ino| self.records.contains_key(ino)) {
            return;
        }
        let mut add = |name: &std::ffi::CStr, rows: fn(&[u8]) -> Vec<net::Row>| {
            if let Ok(bytes) = files::read(base, name) {
                self.records.extend(
                    rows(&bytes)
                        .into_iter()
                        .filter(|(ino, _)| wanted.contains(ino)),
                );
            }
        };
        add(c"net/netlink", |bytes| net::netlink(bytes).collect());
        add(c"net/packet", |bytes| net::packet(bytes).collect());
        add(c"net/raw", |bytes| {
            net::inet(InetKind::Raw, bytes).collect()
        });
        add(c"net/raw6", |bytes| {
            net::inet(InetKind::Raw, bytes).collect()
        });
    }

    /// All that was read.
    pub(super) fn into_rows(self) -> impl Iterator<Item = net::Row> {
        self.records.into_iter()
    }

    /// Fills in one socket; `false` when the tables do not know it.
    pub(super) fn describe(&self, entry: &mut FdEntry) -> bool {
        let Some(record) = entry.id.and_then(|id| self.records.get(&id.ino)) else {
            return false;
        };
        match record {
            SocketRecord::Inet {
                kind,
                state,
                local,
                remote,
                rx,
                tx,
                uid,
            } => {
                let queues = (u64::from(*rx), u64::from(*tx));
                describe_inet(entry, *kind, *state, (*local, *remote), queues, *uid);
            }
            SocketRecord::Unix {
                kind,
                listening,
                connected,
                path,
                peer,
            } => {
                let peer = peer.map(|ino| UnixPeer {
                    ino,
                    path: self.unix_path(ino),
                    holders: Vec::new(),
                    holders_more: 0,
                });
                let path = path.as_deref().map(Text::from);
                describe_unix(entry, (*kind, *listening, *connected), path, peer);
            }
            SocketRecord::Netlink { protocol, port } => {
                let name = netlink_family(*protocol);
                entry.class = Class::Netlink;
                entry.target = Text::from(format!("netlink {name}"));
                entry.detail = Detail::Socket(Socket {
                    protocol: Some(name),
                    port: Some(*port),
                });
            }
            SocketRecord::Packet { protocol } => {
                entry.class = Class::Packet;
                entry.target = Text::from("packet");
                let protocol = Some(format!("0x{protocol:04x}"));
                entry.detail = Detail::Socket(Socket {
                    protocol,
                    port: None,
                });
            }
        }
        true
    }

    fn unix_path(&self, ino: u64) -> Option<Text> {
        match self.records.get(&ino)? {
            SocketRecord::Unix { path, .. } => path.as_deref().map(Text::from),
            _ => None,
        }
    }
}

fn dump(
    socket: &OwnedFd,
    table: Table,
    buffer: &mut [u8],
    mut row: impl FnMut(net::Row),
) -> Result<(), Errno> {
    rustix::net::send(socket, &table.request(), SendFlags::empty())?;
    loop {
        let (length, _) = rustix::net::recv(socket.as_fd(), &mut *buffer, RecvFlags::empty())?;
        match diag::read_datagram(table, &buffer[..length], &mut row) {
            End::More if length > 0 => {}
            // A kernel without this table answers "no such file": that is an empty table.
            End::Refused(code) if code != Errno::NOENT.raw_os_error() => {
                return Err(Errno::from_raw_os_error(code));
            }
            End::More | End::Done | End::Refused(_) => return Ok(()),
        }
    }
}

fn describe_inet(
    entry: &mut FdEntry,
    kind: InetKind,
    state: u8,
    (local, remote): (SocketAddr, SocketAddr),
    (rx, tx): (u64, u64),
    uid: u32,
) {
    let state = match TcpState::from_kernel(state) {
        // A closed socket is in the tables only for its port: bound, and never connected.
        TcpState::Close if remote.port() == 0 => TcpState::Bound,
        state => state,
    };
    let remote = (remote.port() != 0 || !remote.ip().is_unspecified()).then(|| remote.to_string());
    entry.class = match kind {
        InetKind::Tcp => Class::Tcp(state),
        InetKind::Udp => Class::Udp,
        InetKind::Raw => Class::Raw,
    };
    entry.target = Text::from(match &remote {
        Some(remote) => format!("{local}->{remote}"),
        None => local.to_string(),
    });
    entry.detail = Detail::Inet(Box::new(Inet {
        local: Some(local.to_string()),
        remote,
        state: (kind == InetKind::Tcp).then(|| state.name().to_owned()),
        rx_queue: Some(rx),
        tx_queue: Some(tx),
        uid: Some(uid),
    }));
}

fn describe_unix(
    entry: &mut FdEntry,
    (kind, listening, connected): (u8, bool, bool),
    path: Option<Text>,
    peer: Option<UnixPeer>,
) {
    let peer_path = peer.as_ref().and_then(|peer| peer.path.clone());
    entry.class = Class::Unix;
    entry.target = match (&path, peer_path) {
        (Some(path), _) => path.clone(),
        (None, Some(peer)) => Text::from([b"-> ", peer.as_bytes()].concat()),
        (None, None) => std::mem::take(&mut entry.target),
    };
    let state = match (listening, connected) {
        (true, _) => "listening",
        (_, true) => "connected",
        _ => "unconnected",
    };
    let kind = match kind {
        1 => Some("stream"),
        2 => Some("dgram"),
        5 => Some("seqpacket"),
        _ => None,
    };
    entry.detail = Detail::Unix(Box::new(Unix {
        path,
        kind: kind.map(str::to_owned),
        state: Some(state.to_owned()),
        peer,
    }));
}

/// A socket that no table lists, by the protocol name on its inode: unbound, or of a rare family.
pub(super) fn describe_by_protocol(entry: &mut FdEntry, protocol: Option<&str>, tables_read: bool) {
    let Some(protocol) = protocol else {
        entry.class = Class::Other("socket".into());
        return;
    };
    let unlisted = if tables_read {
        TcpState::Unbound
    } else {
        TcpState::Unknown
    };
    let inet = |state: Option<TcpState>| {
        Detail::Inet(Box::new(Inet {
            state: state.map(|state| state.name().to_owned()),
            ..Inet::default()
        }))
    };
    let family = |class: Class| {
        (
            class,
            Detail::Socket(Socket {
                protocol: Some(protocol.to_owned()),
                port: None,
            }),
        )
    };
    (entry.class, entry.detail) = match protocol {
        "TCP" | "TCPv6" => (Class::Tcp(unlisted), inet(Some(unlisted))),
        "UDP" | "UDPv6" => (Class::Udp, inet(None)),
        "RAW" | "RAWv6" => (Class::Raw, inet(None)),
        "NETLINK" => family(Class::Netlink),
        "PACKET" => family(Class::Packet),
        "AF_VSOCK" => family(Class::Vsock),
        unix if unix.starts_with("UNIX") => (Class::Unix, Detail::Unix(Box::default())),
        other => {
            let fields = fdguard_core::detail::Fields::default();
            (Class::Other(other.into()), Detail::Fields(fields))
        }
    };
    entry.target = Text::from(format!("{protocol} socket").to_lowercase());
}

/// An unlisted TCP socket that still has a port was connected once: both sides are done with it, and
/// only the descriptor is left.
pub(super) fn describe_closed(entry: &mut FdEntry, local: Option<SocketAddr>) {
    let Some(local) = local.filter(|local| local.port() != 0) else {
        return;
    };
    entry.class = Class::Tcp(TcpState::Close);
    entry.target = Text::from(local.to_string());
    entry.detail = Detail::Inet(Box::new(Inet {
        local: Some(local.to_string()),
        state: Some(TcpState::Close.name().to_owned()),
        ..Inet::default()
    }));
}

fn netlink_family(number: u8) -> String {
    let name = match number {
        0 => "ROUTE",
        4 => "SOCK_DIAG",
        5 => "NFLOG",
        6 => "XFRM",
        9 => "AUDIT",
        12 => "NETFILTER",
        15 => "KOBJECT_UEVENT",
        16 => "GENERIC",
        21 => "CRYPTO",
        other => return format!("family {other}"),
    };
    name.to_owned()
}
