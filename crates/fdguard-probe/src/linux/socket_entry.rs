//! Builds a socket's descriptor from the kernel's data: pure.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use fdguard_core::detail::{Direction, InetDetail, SocketDetail, UnixDetail, UnixPeer};
use fdguard_core::{Class, Detail, FdEntry, TcpState, Text};
use fdguard_proc::net::{InetKind, SocketRecord};

use crate::parse::sockaddr::SocketName;

/// The properties of a socket that was queried through a borrowed descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketAnswer {
    /// `SO_TYPE`.
    pub(super) kind: Option<u32>,
    /// `SO_PROTOCOL`.
    pub(super) protocol: Option<u32>,
    /// Whether it accepts connections.
    pub(super) accepts: bool,
    /// The state of a TCP socket.
    pub(super) tcp_state: Option<u8>,
    /// This end.
    pub(super) local: Option<SocketName>,
    /// The other end.
    pub(super) remote: Option<SocketName>,
}

/// Fills in one socket by its row in a table.
pub(super) fn describe(
    entry: &mut FdEntry,
    record: &SocketRecord,
    unix_path: impl Fn(u64) -> Option<Text>,
    interface_name: impl Fn(u32) -> Option<String>,
) {
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
            let mut detail = inet(entry, *kind, *state, (*local, *remote));
            detail.rx_queue = Some(u64::from(*rx));
            detail.tx_queue = Some(u64::from(*tx));
            detail.uid = Some(*uid);
            entry.detail = Detail::Inet(Box::new(detail));
        }
        SocketRecord::Unix {
            kind,
            listening,
            connected,
            path,
            peer,
            shutdown,
        } => {
            let peer = peer.map(|ino| UnixPeer {
                ino,
                path: unix_path(ino),
                holders: Vec::new(),
                holders_more: 0,
            });
            let path = path.as_deref().map(Text::from);
            let peer_path = peer.as_ref().and_then(|peer| peer.path.clone());
            let mut detail = unix(
                entry,
                (u32::from(*kind), *listening, *connected),
                path,
                peer_path,
            );
            detail.peer = peer;
            detail.shutdown = shutdown.map(directions);
            entry.detail = Detail::Unix(Box::new(detail));
        }
        SocketRecord::Netlink {
            protocol,
            port,
            groups,
        } => netlink(entry, u32::from(*protocol), *port, *groups),
        SocketRecord::Packet {
            protocol,
            kind,
            interface,
        } => packet(entry, *protocol, Some(*kind), interface_name(*interface)),
    }
}

/// Fills in one socket by its own properties; `false` if they add nothing to its protocol because
/// it has no address yet. `interface` is the name of the one that it is bound to.
pub(super) fn describe_by_answer(
    entry: &mut FdEntry,
    answer: &SocketAnswer,
    interface: Option<String>,
) -> bool {
    let Some(local) = &answer.local else {
        return false;
    };
    match (local, inet_kind(entry, answer)) {
        (SocketName::Inet(local), Some(kind)) => {
            let remote = answer.remote.as_ref().and_then(SocketName::inet);
            // The id of an echo and the number of a raw protocol are not ports.
            if local.port() == 0 && remote.is_none() && kind != InetKind::Raw {
                return false;
            }
            let local = match (kind, answer.protocol) {
                (InetKind::Raw, Some(number)) => {
                    SocketAddr::new(local.ip(), u16::try_from(number).unwrap_or(0))
                }
                _ => *local,
            };
            let remote = remote.unwrap_or_else(|| unspecified(local));
            let state = answer.tcp_state.unwrap_or(CLOSED);
            let mut detail = inet(entry, kind, state, (local, remote));
            // Both sides closed it, and only the descriptor is left. A socket that was only bound
            // looks the same here, on kernels that do not list such sockets.
            if kind == InetKind::Tcp && state == CLOSED {
                entry.class = Class::Tcp(TcpState::Close);
                detail.state = Some(TcpState::Close.name().to_owned());
            }
            entry.detail = Detail::Inet(Box::new(detail));
        }
        (SocketName::Unix(path), _) => {
            let path = path.as_deref().map(Text::from);
            let peer_path = match &answer.remote {
                Some(SocketName::Unix(path)) => path.as_deref().map(Text::from),
                _ => None,
            };
            let kind = answer.kind.unwrap_or(0);
            let state = (kind, answer.accepts, answer.remote.is_some());
            let detail = unix(entry, state, path, peer_path);
            entry.detail = Detail::Unix(Box::new(detail));
        }
        (SocketName::Netlink { port, groups }, _) => {
            let Some(protocol) = answer.protocol else {
                return false;
            };
            netlink(entry, protocol, *port, *groups);
        }
        (SocketName::Packet { protocol, .. }, _) => {
            packet(entry, *protocol, answer.kind, interface);
        }
        (SocketName::Vsock { .. }, _) => vsock(entry, answer),
        (SocketName::Inet(_), None) => return false,
    }
    true
}

/// TCP_CLOSE
const CLOSED: u8 = 7;

fn unspecified(like: SocketAddr) -> SocketAddr {
    if like.is_ipv4() {
        SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)
    } else {
        SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0)
    }
}

/// The protocol, by the class derived from its protocol's name.
fn inet_kind(entry: &FdEntry, answer: &SocketAnswer) -> Option<InetKind> {
    const UDPLITE: u32 = 136;
    match &entry.class {
        Class::Tcp(_) => Some(InetKind::Tcp),
        Class::Udp if answer.protocol == Some(UDPLITE) => Some(InetKind::UdpLite),
        Class::Udp => Some(InetKind::Udp),
        Class::Raw => Some(InetKind::Raw),
        Class::Other(name) if name.starts_with("PING") => Some(InetKind::Ping),
        _ => None,
    }
}

/// Class, target and the fields that every table has for an IP socket.
fn inet(
    entry: &mut FdEntry,
    kind: InetKind,
    state: u8,
    (local, remote): (SocketAddr, SocketAddr),
) -> InetDetail {
    let state = match TcpState::from_kernel(state) {
        // A closed socket is in the tables only for its port: bound, and never connected.
        TcpState::Close if remote.port() == 0 => TcpState::Bound,
        state => state,
    };
    let remote = (remote.port() != 0 || !remote.ip().is_unspecified()).then(|| remote.to_string());
    entry.class = match kind {
        InetKind::Tcp => Class::Tcp(state),
        InetKind::Udp | InetKind::UdpLite => Class::Udp,
        InetKind::Raw => Class::Raw,
        InetKind::Ping if local.is_ipv4() => Class::Other("PING".into()),
        InetKind::Ping => Class::Other("PINGv6".into()),
    };
    entry.target = Text::from(match &remote {
        Some(remote) => format!("{local}->{remote}"),
        None => local.to_string(),
    });
    InetDetail {
        local: Some(local.to_string()),
        remote,
        state: (kind == InetKind::Tcp).then(|| state.name().to_owned()),
        protocol: match kind {
            InetKind::Raw => Some(ip_protocol(local.port())),
            InetKind::UdpLite => Some("UDP-Lite".to_owned()),
            InetKind::Ping if local.is_ipv4() => Some("ICMP".to_owned()),
            InetKind::Ping => Some("ICMPv6".to_owned()),
            InetKind::Tcp | InetKind::Udp => None,
        },
        ..InetDetail::default()
    }
}

/// Class, target and the fields that every table has for a unix-domain socket.
fn unix(
    entry: &mut FdEntry,
    (kind, listening, connected): (u32, bool, bool),
    path: Option<Text>,
    peer_path: Option<Text>,
) -> UnixDetail {
    entry.class = Class::Unix;
    match (&path, peer_path) {
        (Some(path), _) => entry.target = path.clone(),
        (None, Some(peer)) => entry.target = Text::from([b"-> ", peer.as_bytes()].concat()),
        (None, None) => {}
    }
    let state = match (listening, connected) {
        (true, _) => "listening",
        (_, true) => "connected",
        _ => "unconnected",
    };
    UnixDetail {
        path,
        kind: kind_name(kind),
        state: Some(state.to_owned()),
        ..UnixDetail::default()
    }
}

fn netlink(entry: &mut FdEntry, protocol: u32, port: u32, groups: u32) {
    let name = netlink_family(protocol);
    entry.class = Class::Netlink;
    entry.target = Text::from(format!("netlink {name}"));
    let groups = (1..=32_u8).filter(|group| groups >> (group - 1) & 1 == 1);
    entry.detail = Detail::Socket(SocketDetail {
        protocol: Some(name),
        port: Some(port),
        groups: Some(groups.collect()),
        ..SocketDetail::default()
    });
}

fn packet(entry: &mut FdEntry, protocol: u16, kind: Option<u32>, interface: Option<String>) {
    entry.class = Class::Packet;
    entry.target = Text::from("packet");
    entry.detail = Detail::Socket(SocketDetail {
        protocol: Some(format!("0x{protocol:04x}")),
        kind: kind.and_then(kind_name),
        interface,
        ..SocketDetail::default()
    });
}

fn vsock(entry: &mut FdEntry, answer: &SocketAnswer) {
    let text = |name: &Option<SocketName>| match name {
        Some(SocketName::Vsock { cid, port }) => Some(format!("{}:{port}", vsock_machine(*cid))),
        _ => None,
    };
    let (local, remote) = (text(&answer.local), text(&answer.remote));
    let shown = local.iter().chain(&remote).map(String::as_str);
    entry.target = Text::from(format!("vsock {}", shown.collect::<Vec<_>>().join("->")));
    entry.detail = Detail::Socket(SocketDetail {
        protocol: Some("AF_VSOCK".to_owned()),
        kind: answer.kind.and_then(kind_name),
        local,
        remote,
        ..SocketDetail::default()
    });
}

fn vsock_machine(cid: u32) -> String {
    match cid {
        u32::MAX => "*".to_owned(),
        number => number.to_string(),
    }
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
    let inet = |state: Option<TcpState>, protocol: Option<&str>| {
        Detail::Inet(Box::new(InetDetail {
            state: state.map(|state| state.name().to_owned()),
            protocol: protocol.map(str::to_owned),
            ..InetDetail::default()
        }))
    };
    let family = |class: Class| {
        (
            class,
            Detail::Socket(SocketDetail {
                protocol: Some(protocol.to_owned()),
                ..SocketDetail::default()
            }),
        )
    };
    (entry.class, entry.detail) = match protocol {
        "TCP" | "TCPv6" => (Class::Tcp(unlisted), inet(Some(unlisted), None)),
        "UDP" | "UDPv6" => (Class::Udp, inet(None, None)),
        "UDP-Lite" | "UDPLITEv6" => (Class::Udp, inet(None, Some("UDP-Lite"))),
        "RAW" | "RAWv6" => (Class::Raw, inet(None, None)),
        "PING" => (Class::Other("PING".into()), inet(None, Some("ICMP"))),
        "PINGv6" => (Class::Other("PINGv6".into()), inet(None, Some("ICMPv6"))),
        "NETLINK" => family(Class::Netlink),
        "PACKET" => family(Class::Packet),
        "AF_VSOCK" => family(Class::Vsock),
        unix if unix.starts_with("UNIX") => (Class::Unix, Detail::Unix(Box::default())),
        other => {
            let fields = fdguard_core::detail::OtherDetail::default();
            (Class::Other(other.into()), Detail::Fields(fields))
        }
    };
    entry.target = Text::from(format!("{protocol} socket").to_lowercase());
}

fn directions(bits: u8) -> Vec<Direction> {
    let all = [(1, Direction::Read), (2, Direction::Write)];
    let shut = all.into_iter().filter(|(bit, _)| bits & bit != 0);
    shut.map(|(_, direction)| direction).collect()
}

fn kind_name(number: u32) -> Option<String> {
    let name = match number {
        1 => "stream",
        2 => "dgram",
        3 => "raw",
        4 => "rdm",
        5 => "seqpacket",
        6 => "dccp",
        10 => "packet",
        _ => return None,
    };
    Some(name.to_owned())
}

fn ip_protocol(number: u16) -> String {
    let name = match number {
        1 => "ICMP",
        2 => "IGMP",
        4 => "IPIP",
        6 => "TCP",
        17 => "UDP",
        41 => "IPv6",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        58 => "ICMPv6",
        89 => "OSPF",
        103 => "PIM",
        112 => "VRRP",
        132 => "SCTP",
        136 => "UDP-Lite",
        255 => "RAW",
        other => return format!("protocol {other}"),
    };
    name.to_owned()
}

fn netlink_family(number: u32) -> String {
    let name = match number {
        0 => "ROUTE",
        2 => "USERSOCK",
        4 => "SOCK_DIAG",
        5 => "NFLOG",
        6 => "XFRM",
        7 => "SELINUX",
        8 => "ISCSI",
        9 => "AUDIT",
        10 => "FIB_LOOKUP",
        11 => "CONNECTOR",
        12 => "NETFILTER",
        14 => "DNRTMSG",
        15 => "KOBJECT_UEVENT",
        16 => "GENERIC",
        18 => "SCSITRANSPORT",
        19 => "ECRYPTFS",
        20 => "RDMA",
        21 => "CRYPTO",
        22 => "SMC",
        other => return format!("family {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use fdguard_core::{Class, FdEntry, TcpState};

    use super::{SocketAnswer, describe_by_answer, describe_by_protocol};
    use crate::linux::classify;
    use crate::parse::sockaddr::SocketName;
    use fdguard_proc::fdinfo::Fdinfo;

    fn unlisted(protocol: &str) -> FdEntry {
        let info = Fdinfo::parse(b"pos:\t0\nflags:\t02\nmnt_id:\t9\nino:\t12\n");
        let mut entry = classify::socket(3, &info, 12);
        describe_by_protocol(&mut entry, Some(protocol), true);
        entry
    }

    fn inet(text: &str) -> Option<SocketName> {
        Some(SocketName::Inet(text.parse().unwrap()))
    }

    #[test]
    fn an_unlisted_tcp_socket_has_the_state_that_it_says() {
        let listener = SocketAnswer {
            tcp_state: Some(10),
            local: inet("127.0.0.1:80"),
            ..SocketAnswer::default()
        };
        let mut entry = unlisted("TCP");
        assert!(describe_by_answer(&mut entry, &listener, None));
        assert_eq!(entry.class, Class::Tcp(TcpState::Listen));
        let connected = SocketAnswer {
            tcp_state: Some(1),
            remote: inet("127.0.0.2:81"),
            ..listener.clone()
        };
        assert!(describe_by_answer(&mut entry, &connected, None));
        assert_eq!(entry.class, Class::Tcp(TcpState::Established));
        assert_eq!(entry.target.as_bytes(), b"127.0.0.1:80->127.0.0.2:81");
        let closed = SocketAnswer {
            tcp_state: Some(7),
            ..listener.clone()
        };
        assert!(describe_by_answer(&mut entry, &closed, None));
        assert_eq!(entry.class, Class::Tcp(TcpState::Close));
    }

    #[test]
    fn an_unbound_socket_stays_unbound() {
        let answer = SocketAnswer {
            tcp_state: Some(7),
            local: inet("0.0.0.0:0"),
            ..SocketAnswer::default()
        };
        let mut entry = unlisted("TCP");
        assert!(!describe_by_answer(&mut entry, &answer, None));
        assert_eq!(entry.class, Class::Tcp(TcpState::Unbound));
        let mut entry = unlisted("UDP");
        assert!(!describe_by_answer(&mut entry, &answer, None));
        assert_eq!(entry.target.as_bytes(), b"udp socket");
    }
}
