//! What is known of a socket, from its row in a table or from its own answers: pure.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use fdguard_core::detail::{
    Direction, InetDetail, OtherDetail, SocketDetail, UnixDetail, UnixPeer,
};
use fdguard_core::{Class, Detail, TcpState, Text};
use fdguard_proc::net::{InetKind, SocketRecord};

use super::classify::numbered_text;
use super::socket_names::{ip_protocol, kind_name, netlink_family};
use crate::parse::sockaddr::SocketName;

/// What makes an entry of a socket.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SocketDescription {
    pub(super) class: Class,
    pub(super) target: Text,
    pub(super) detail: Detail,
}

impl SocketDescription {
    fn inet(class: Class, target: Text, detail: InetDetail) -> Self {
        let detail = Detail::Inet(Box::new(detail));
        Self {
            class,
            target,
            detail,
        }
    }

    fn of_family(class: Class, target: impl Into<Text>, detail: SocketDetail) -> Self {
        Self {
            class,
            target: target.into(),
            detail: Detail::Socket(Box::new(detail)),
        }
    }
}

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

/// A socket by its row in a table.
pub(super) fn by_record(
    ino: u64,
    record: &SocketRecord,
    unix_path: impl Fn(u64) -> Option<Text>,
    interface_name: impl Fn(u32) -> Option<String>,
) -> SocketDescription {
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
            let (class, target, detail) = inet(*kind, *state, (*local, *remote));
            let detail = InetDetail {
                rx_queue: Some(u64::from(*rx)),
                tx_queue: Some(u64::from(*tx)),
                uid: Some(*uid),
                ..detail
            };
            SocketDescription::inet(class, target, detail)
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
            let state = (u32::from(*kind), *listening, *connected);
            let peer_path = peer.as_ref().and_then(|peer| peer.path.as_ref());
            let nameless = || numbered_text("socket", ino);
            let mut known = unix(state, path, peer_path, nameless);
            if let Detail::Unix(detail) = &mut known.detail {
                detail.peer = peer;
                detail.shutdown = shutdown.map(directions);
            }
            known
        }
        SocketRecord::Netlink {
            protocol,
            port,
            groups,
        } => netlink(u32::from(*protocol), *port, *groups),
        SocketRecord::Packet {
            protocol,
            kind,
            interface,
        } => packet(*protocol, Some(*kind), interface_name(*interface)),
    }
}

/// A socket by its own answers; `None` if they add nothing to what its protocol gave, because it
/// has no address yet. `interface` is the name of the one that it is bound to.
pub(super) fn by_answer(
    known: &SocketDescription,
    answer: &SocketAnswer,
    interface: Option<String>,
) -> Option<SocketDescription> {
    match (answer.local.as_ref()?, inet_kind(&known.class, answer)) {
        (SocketName::Inet(local), Some(kind)) => inet_by_answer(kind, *local, answer),
        (SocketName::Inet(_), None) => None,
        (SocketName::Unix(path), _) => {
            let path = path.as_deref().map(Text::from);
            let peer_path = match &answer.remote {
                Some(SocketName::Unix(path)) => path.as_deref().map(Text::from),
                _ => None,
            };
            let kind = answer.kind.unwrap_or(0);
            let state = (kind, answer.accepts, answer.remote.is_some());
            let nameless = || known.target.clone();
            Some(unix(state, path, peer_path.as_ref(), nameless))
        }
        (SocketName::Netlink { port, groups }, _) => {
            Some(netlink(answer.protocol?, *port, *groups))
        }
        (SocketName::Packet { protocol, .. }, _) => Some(packet(*protocol, answer.kind, interface)),
        (SocketName::Vsock { .. }, _) => Some(vsock(answer)),
    }
}

fn inet_by_answer(
    kind: InetKind,
    local: SocketAddr,
    answer: &SocketAnswer,
) -> Option<SocketDescription> {
    let remote = answer.remote.as_ref().and_then(SocketName::inet);
    // The id of an echo and the number of a raw protocol are not ports.
    if local.port() == 0 && remote.is_none() && kind != InetKind::Raw {
        return None;
    }
    let local = match (kind, answer.protocol) {
        (InetKind::Raw, Some(number)) => {
            SocketAddr::new(local.ip(), u16::try_from(number).unwrap_or(0))
        }
        _ => local,
    };
    let remote = remote.unwrap_or_else(|| unspecified(local));
    let state = answer.tcp_state.unwrap_or(CLOSED);
    let (mut class, target, mut detail) = inet(kind, state, (local, remote));
    // Both sides closed it, and only the descriptor is left. A socket that was only bound looks the
    // same here, on kernels that do not list such sockets.
    if kind == InetKind::Tcp && state == CLOSED {
        class = Class::Tcp(TcpState::Close);
        detail.state = Some(TcpState::Close.name().into());
    }
    Some(SocketDescription::inet(class, target, detail))
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
fn inet_kind(class: &Class, answer: &SocketAnswer) -> Option<InetKind> {
    const UDPLITE: u32 = 136;
    match class {
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
    kind: InetKind,
    state: u8,
    (local, remote): (SocketAddr, SocketAddr),
) -> (Class, Text, InetDetail) {
    let state = match TcpState::from_kernel(state) {
        // A closed socket is in the tables only for its port: bound, and never connected.
        TcpState::Close if remote.port() == 0 => TcpState::Bound,
        state => state,
    };
    let local_text = address_text(local);
    let has_remote = remote.port() != 0 || !remote.ip().is_unspecified();
    let remote = has_remote.then(|| address_text(remote));
    let class = match kind {
        InetKind::Tcp => Class::Tcp(state),
        InetKind::Udp | InetKind::UdpLite => Class::Udp,
        InetKind::Raw => Class::Raw,
        InetKind::Ping if local.is_ipv4() => Class::Other("PING".into()),
        InetKind::Ping => Class::Other("PINGv6".into()),
    };
    let target = match &remote {
        Some(remote) => Text::from([&*local_text, "->", remote].concat()),
        None => Text::from(&*local_text),
    };
    let detail = InetDetail {
        local: Some(local_text),
        remote,
        state: (kind == InetKind::Tcp).then(|| state.name().into()),
        protocol: match kind {
            InetKind::Raw => Some(ip_protocol(local.port())),
            InetKind::UdpLite => Some("UDP-Lite".to_owned()),
            InetKind::Ping if local.is_ipv4() => Some("ICMP".to_owned()),
            InetKind::Ping => Some("ICMPv6".to_owned()),
            InetKind::Tcp | InetKind::Udp => None,
        },
        ..InetDetail::default()
    };
    (class, target, detail)
}

/// The address as its `Display` writes it. A large server has thousands of them, and most are
/// IPv4.
fn address_text(address: SocketAddr) -> String {
    let SocketAddr::V4(address) = address else {
        return address.to_string();
    };
    let mut text = String::with_capacity("255.255.255.255:65535".len());
    let mut number = itoa::Buffer::new();
    for (index, byte) in address.ip().octets().into_iter().enumerate() {
        text.push_str(if index == 0 { "" } else { "." });
        text.push_str(number.format(byte));
    }
    text.push(':');
    text.push_str(number.format(address.port()));
    text
}

/// A unix-domain socket, by what every table has; `nameless` is its target if neither end has a
/// name.
fn unix(
    (kind, listening, connected): (u32, bool, bool),
    path: Option<Text>,
    peer_path: Option<&Text>,
    nameless: impl Fn() -> Text,
) -> SocketDescription {
    let target = match (&path, peer_path) {
        (Some(path), _) => path.clone(),
        (None, Some(peer)) => Text::from([b"-> ", peer.as_bytes()].concat()),
        (None, None) => nameless(),
    };
    let state = match (listening, connected) {
        (true, _) => "listening",
        (_, true) => "connected",
        _ => "unconnected",
    };
    SocketDescription {
        class: Class::Unix,
        target,
        detail: Detail::Unix(Box::new(UnixDetail {
            path,
            kind: kind_name(kind),
            state: Some(state.into()),
            ..UnixDetail::default()
        })),
    }
}

fn netlink(protocol: u32, port: u32, groups: u32) -> SocketDescription {
    let name = netlink_family(protocol);
    let target = format!("netlink {name}");
    let groups = (1..=32_u8).filter(|group| groups >> (group - 1) & 1 == 1);
    let detail = SocketDetail {
        protocol: Some(name),
        port: Some(port),
        groups: Some(groups.collect()),
        ..SocketDetail::default()
    };
    SocketDescription::of_family(Class::Netlink, target, detail)
}

fn packet(protocol: u16, kind: Option<u32>, interface: Option<String>) -> SocketDescription {
    let detail = SocketDetail {
        protocol: Some(format!("0x{protocol:04x}")),
        kind: kind.and_then(kind_name),
        interface,
        ..SocketDetail::default()
    };
    SocketDescription::of_family(Class::Packet, "packet", detail)
}

fn vsock(answer: &SocketAnswer) -> SocketDescription {
    let text = |name: &Option<SocketName>| match name {
        Some(SocketName::Vsock { cid, port }) => Some(format!("{}:{port}", vsock_machine(*cid))),
        _ => None,
    };
    let (local, remote) = (text(&answer.local), text(&answer.remote));
    let shown = local.iter().chain(&remote).map(String::as_str);
    let target = format!("vsock {}", shown.collect::<Vec<_>>().join("->"));
    let detail = SocketDetail {
        protocol: Some("AF_VSOCK".to_owned()),
        kind: answer.kind.and_then(kind_name),
        local,
        remote,
        ..SocketDetail::default()
    };
    SocketDescription::of_family(Class::Vsock, target, detail)
}

fn vsock_machine(cid: u32) -> String {
    match cid {
        u32::MAX => "*".to_owned(),
        number => number.to_string(),
    }
}

/// A socket that no table lists, by the protocol name on its inode: unbound, or of a rare family.
pub(super) fn by_protocol(
    ino: u64,
    protocol: Option<&str>,
    tables_read: bool,
) -> SocketDescription {
    let Some(protocol) = protocol else {
        let class = Class::Other("socket".into());
        let target = numbered_text("socket", ino);
        return SocketDescription::of_family(class, target, SocketDetail::default());
    };
    let unlisted = if tables_read {
        TcpState::Unbound
    } else {
        TcpState::Unknown
    };
    let inet = |state: Option<TcpState>, protocol: Option<&str>| {
        Detail::Inet(Box::new(InetDetail {
            state: state.map(|state| state.name().into()),
            protocol: protocol.map(str::to_owned),
            ..InetDetail::default()
        }))
    };
    let family = |class: Class| {
        let detail = SocketDetail {
            protocol: Some(protocol.to_owned()),
            ..SocketDetail::default()
        };
        (class, Detail::Socket(Box::new(detail)))
    };
    let (class, detail) = match protocol {
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
            let fields = OtherDetail::default();
            (Class::Other(other.into()), Detail::Fields(fields))
        }
    };
    SocketDescription {
        class,
        target: Text::from(format!("{protocol} socket").to_lowercase()),
        detail,
    }
}

fn directions(bits: u8) -> Vec<Direction> {
    let all = [(1, Direction::Read), (2, Direction::Write)];
    let shut = all.into_iter().filter(|(bit, _)| bits & bit != 0);
    shut.map(|(_, direction)| direction).collect()
}

#[cfg(test)]
mod tests;
