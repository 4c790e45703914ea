//! A socket by its record: what the tables of its network namespace would show. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fdguard_core::Text;
use fdguard_proc::net::{InetKind, SocketRecord};

use super::super::socket::{self, ConnectionEnds};
use super::super::socket_entry::{self, SocketDescription};
use super::record::{Record, Tail, field};
use crate::parse::diag;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const TCP: u16 = 6;
const UDP: u16 = 17;
const STREAM: u16 = 1;
const DATAGRAM: u16 = 2;
const ESTABLISHED: u8 = 1;
const CLOSED: u8 = 7;
const LISTENING: u8 = 10;
/// The states in which the tables list a TCP socket that a process holds: not those of a connection
/// that is being accepted, that waits, or that is closed.
const LISTED: [u8; 8] = [ESTABLISHED, 2, 4, 5, 8, 9, LISTENING, 11];
/// Where the names of a Unix socket are, and the space for each.
const NAMES: usize = 24;
const NAME: usize = 128;

/// The socket, and both ends of a connection within this host; `None` if its tables must be read.
pub(super) fn describe(record: &Record<'_>) -> Option<(SocketDescription, Option<ConnectionEnds>)> {
    let ino = record.ino;
    let (mut known, ends) = match record.tail {
        Tail::Inet(bytes) => inet(ino, bytes)?,
        Tail::Unix(bytes) => (unix(ino, bytes)?, None),
        Tail::Netlink(bytes) => (netlink(ino, bytes)?, None),
        _ => return None,
    };
    known.detail.set_netns(Some(u64::from(record.netns)));
    Some((known, ends))
}

fn inet(ino: u64, bytes: &[u8]) -> Option<(SocketDescription, Option<ConnectionEnds>)> {
    let word = |at: usize| field(bytes, at).map(u32::from_ne_bytes);
    let half = |at: usize| field(bytes, at).map(u16::from_ne_bytes);
    let port = |at: usize| field(bytes, at).map(u16::from_be_bytes);
    let (family, state) = (half(12)?, *bytes.get(22)?);
    let address = |at: usize| match family {
        AF_INET => Some(IpAddr::V4(Ipv4Addr::from(field::<4>(bytes, at)?))),
        AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(field::<16>(bytes, at)?))),
        _ => None,
    };
    let local = SocketAddr::new(address(28)?, port(18)?);
    let remote = SocketAddr::new(address(44)?, port(20)?);
    let kind = match (half(14)?, half(16)?) {
        (TCP, STREAM) => InetKind::Tcp,
        (UDP, DATAGRAM) => InetKind::Udp,
        _ => return None,
    };
    if state == CLOSED && local.port() == 0 && remote.port() == 0 {
        let name = match (kind, local.is_ipv4()) {
            (InetKind::Tcp, true) => "TCP",
            (InetKind::Tcp, false) => "TCPv6",
            (_, true) => "UDP",
            (_, false) => "UDPv6",
        };
        return Some((socket_entry::by_protocol(ino, Some(name), true), None));
    }
    if local.port() == 0 || (kind == InetKind::Tcp && !LISTED.contains(&state)) {
        return None;
    }
    let record = SocketRecord::Inet {
        kind,
        state,
        local,
        remote,
        rx: word(4)?,
        tx: word(8)?,
        uid: word(0)?,
    };
    let ends = socket::local_connection(&record);
    let known = socket_entry::by_record(ino, &record, |_| None, |_| None);
    Some((known, ends))
}

fn unix(ino: u64, bytes: &[u8]) -> Option<SocketDescription> {
    let half = |at: usize| field(bytes, at).map(u16::from_ne_bytes);
    let name = |at: usize, length: u16| match usize::from(length) {
        0 => Some(None),
        length => Some(diag::unix_name(bytes.get(at..)?.get(..length)?)),
    };
    let [state, shutdown, has_peer] = field(bytes, 14)?;
    let peer = u64::from_ne_bytes(field(bytes, 0)?);
    let record = SocketRecord::Unix {
        kind: u8::try_from(half(8)?).ok()?,
        listening: state == LISTENING,
        connected: state == ESTABLISHED || has_peer != 0,
        path: name(NAMES, half(10)?)?,
        peer: (peer != 0).then_some(peer),
        shutdown: Some(shutdown),
    };
    let peer_name = name(NAMES + NAME, half(12)?)?;
    let peer_path = |_| peer_name.as_deref().map(Text::from);
    Some(socket_entry::by_record(ino, &record, peer_path, |_| None))
}

fn netlink(ino: u64, bytes: &[u8]) -> Option<SocketDescription> {
    let word = |at: usize| field(bytes, at).map(u32::from_ne_bytes);
    let record = SocketRecord::Netlink {
        protocol: u8::try_from(word(0)?).ok()?,
        port: word(4)?,
        groups: word(8)?,
    };
    Some(socket_entry::by_record(ino, &record, |_| None, |_| None))
}
