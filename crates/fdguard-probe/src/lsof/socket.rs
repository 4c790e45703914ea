//! Sockets from their file sets.

use std::borrow::Cow;

use bstr::ByteSlice as _;
use fdguard_core::detail::{InetDetail, SocketDetail, UnixDetail};
use fdguard_core::{Class, Detail, TcpState, Text};
use fdguard_proc::ascii::decimal;

use super::classify::{Setting, Thing};
use crate::parse::lsof::LsofSet;

/// Whether this lsof type is a socket that is classified here.
pub(super) fn is_socket(kind: &[u8]) -> bool {
    matches!(
        kind,
        b"IPv4" | b"IPv6" | b"unix" | b"sock" | b"netlink" | b"pack" | b"raw" | b"raw6"
    )
}

/// The socket of a file set.
pub(super) fn describe(kind: &[u8], name: &[u8], set: &LsofSet<'_>, setting: Setting) -> Thing {
    match kind {
        b"IPv4" | b"IPv6" => inet(kind == b"IPv6", name, set),
        b"unix" => unix(name, set),
        b"netlink" => {
            let family = name.to_str_lossy();
            let target = format!("netlink {family}");
            of_family(Class::Netlink, Some(family.into_owned()), target)
        }
        b"pack" => {
            let protocol = set.get(b'P').map(|name| name.to_str_lossy().into_owned());
            of_family(Class::Packet, protocol, "packet".to_owned())
        }
        b"raw" | b"raw6" => Thing {
            class: Class::Raw,
            target: Text::from(name.split_str(b" st=").next().unwrap_or(name)),
            detail: Detail::Inet(Box::default()),
        },
        _ => unlisted(name, setting),
    }
}

fn of_family(class: Class, protocol: Option<String>, target: String) -> Thing {
    Thing {
        class,
        target: target.into(),
        detail: Detail::Socket(Box::new(SocketDetail {
            protocol,
            ..SocketDetail::default()
        })),
    }
}

fn inet(six: bool, name: &[u8], set: &LsofSet<'_>) -> Thing {
    let name = name.to_str_lossy();
    let (local, remote) = match name.split_once("->") {
        Some((local, remote)) => (local, address(remote, six)),
        None => (&*name, None),
    };
    let local = address(local, six);
    let queue = |key: &[u8]| set.tcp(key).and_then(decimal);
    let state = state(set.tcp(b"ST"), local.is_some(), remote.is_some());
    let (class, state) = match set.get(b'P') {
        Some(b"TCP") => (Class::Tcp(state), Some(state.name().into())),
        Some(b"UDP") => (Class::Udp, None),
        Some(b"UDPLITE") => (Class::Other("UDPLITE".into()), None),
        // Any other protocol over IP, by its name or number.
        Some(_) => (Class::Raw, None),
        None => (Class::Other("socket".into()), None),
    };
    let target = match (&local, &remote) {
        (Some(local), Some(remote)) => format!("{local}->{remote}"),
        (Some(local), None) => local.clone(),
        (None, _) => name.to_string(),
    };
    if let Class::Other(_) = class {
        return Thing::named(class, target);
    }
    Thing {
        class,
        target: target.into(),
        detail: Detail::Inet(Box::new(InetDetail {
            local,
            remote,
            state,
            rx_queue: queue(b"QR"),
            tx_queue: queue(b"QS"),
            ..InetDetail::default()
        })),
    }
}

/// An address with port. lsof prints `*` for any address, and `*:*` if there is none.
fn address(text: &str, six: bool) -> Option<String> {
    match text.strip_prefix("*:") {
        Some("*") => None,
        Some(port) if six => Some(format!("[::]:{port}")),
        Some(port) => Some(format!("0.0.0.0:{port}")),
        None => (!text.is_empty()).then(|| text.to_owned()),
    }
}

/// The state by its name, in the spelling of Linux or of the BSDs.
fn state(name: Option<&[u8]>, bound: bool, connected: bool) -> TcpState {
    match name {
        Some(b"ESTABLISHED") => TcpState::Established,
        Some(b"SYN_SENT") => TcpState::SynSent,
        Some(b"SYN_RECV" | b"SYN_RCVD" | b"SYN_RECEIVED") => TcpState::SynRecv,
        Some(b"FIN_WAIT1" | b"FIN_WAIT_1") => TcpState::FinWait1,
        Some(b"FIN_WAIT2" | b"FIN_WAIT_2") => TcpState::FinWait2,
        Some(b"TIME_WAIT") => TcpState::TimeWait,
        Some(b"CLOSE_WAIT") => TcpState::CloseWait,
        Some(b"LAST_ACK") => TcpState::LastAck,
        Some(b"LISTEN") => TcpState::Listen,
        Some(b"CLOSING") => TcpState::Closing,
        // An unused socket is also "closed": the addresses show how far it got.
        Some(b"CLOSE" | b"CLOSED") => match (bound, connected) {
            (_, true) => TcpState::Close,
            (true, false) => TcpState::Bound,
            (false, false) => TcpState::Unbound,
        },
        Some(b"BOUND") => TcpState::Bound,
        _ => TcpState::Unknown,
    }
}

/// `/path type=STREAM` on Linux; a path, `->0x1234`, `->(none)` or `no address` on macOS.
fn unix(name: &[u8], set: &LsofSet<'_>) -> Thing {
    let (path, kind) = match name.rfind(b"type=") {
        Some(0) => (&b""[..], Some(&name[5..])),
        Some(at) if name[at - 1] == b' ' => (&name[..at - 1], Some(&name[at + 5..])),
        _ => (name, None),
    };
    let path = (path.starts_with(b"/") || path.starts_with(b"@")).then(|| Text::from(path));
    let state = match set.tcp(b"ST") {
        Some(b"LISTEN" | b"LISTENING") => Some("listening"),
        Some(b"CONNECTED") => Some("connected"),
        Some(b"UNCONNECTED") => Some("unconnected"),
        _ => None,
    };
    let target = match (&path, set.number(b'i')) {
        (Some(path), _) => path.clone(),
        (None, Some(ino)) => Text::from(format!("socket:[{ino}]")),
        (None, None) => Text::from(name),
    };
    Thing {
        class: Class::Unix,
        target,
        detail: Detail::Unix(Box::new(UnixDetail {
            path,
            kind: kind.map(|kind| kind.to_str_lossy().to_lowercase().into()),
            state: state.map(Cow::Borrowed),
            ..UnixDetail::default()
        })),
    }
}

/// A socket that is in none of the tables that lsof reads: only the protocol is known.
fn unlisted(name: &[u8], setting: Setting) -> Thing {
    let Some(protocol) = name.strip_prefix(b"protocol: ") else {
        return Thing::named(Class::Other("socket".into()), name);
    };
    let protocol = protocol.to_str_lossy();
    let state = if setting.foreign_network {
        TcpState::Unknown
    } else {
        TcpState::Unbound
    };
    let inet = |state: Option<TcpState>| {
        Detail::Inet(Box::new(InetDetail {
            state: state.map(|state| state.name().into()),
            ..InetDetail::default()
        }))
    };
    let target = format!("{protocol} socket").to_lowercase();
    let (class, detail) = match &*protocol {
        "TCP" | "TCPv6" => (Class::Tcp(state), inet(Some(state))),
        "UDP" | "UDPv6" => (Class::Udp, inet(None)),
        "RAW" | "RAWv6" => (Class::Raw, inet(None)),
        "NETLINK" => return of_family(Class::Netlink, Some(protocol.into_owned()), target),
        "PACKET" => return of_family(Class::Packet, Some(protocol.into_owned()), target),
        "AF_VSOCK" => return of_family(Class::Vsock, Some(protocol.into_owned()), target),
        unix if unix.starts_with("UNIX") => (Class::Unix, Detail::Unix(Box::default())),
        other => return Thing::named(Class::Other(other.into()), target),
    };
    Thing {
        class,
        target: target.into(),
        detail,
    }
}
