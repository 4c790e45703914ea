//! `sock_diag` netlink messages: encodes requests, decodes replies to socket records.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fdguard_proc::net::{InetKind, SocketRecord, SocketRow};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER: usize = 16;

/// Address families, as the kernel numbers them.
const AF_UNIX: u8 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;

const UDIAG_SHOW_NAME: u32 = 0x1;
const UDIAG_SHOW_PEER: u32 = 0x4;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_SHUTDOWN: u16 = 6;
const TCP_ESTABLISHED: u8 = 1;
const TCP_LISTEN: u8 = 10;
const TCP_SYN_RECV: u8 = 3;
const TCP_TIME_WAIT: u8 = 6;
const TCP_NEW_SYN_RECV: u8 = 12;

/// One table that can be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiagTable {
    /// Unix-domain sockets.
    Unix,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
}

impl DiagTable {
    /// The request that dumps the table.
    #[must_use]
    pub fn request(self) -> Vec<u8> {
        self.request_for(HELD_STATES, 0)
    }

    /// The request for sockets in these states (bit n for state n) at this local port; 0 is any.
    /// The kernel filters them: this is cheap on a host with many connections. Unix-domain sockets
    /// have neither: all of them are requested.
    #[must_use]
    pub fn request_for(self, states: u32, local_port: u16) -> Vec<u8> {
        let inet = |family, protocol| inet_request(family, protocol, states, local_port);
        let body = match self {
            Self::Unix => unix_request(),
            Self::Tcp4 => inet(AF_INET, IPPROTO_TCP),
            Self::Tcp6 => inet(AF_INET6, IPPROTO_TCP),
            Self::Udp4 => inet(AF_INET, IPPROTO_UDP),
            Self::Udp6 => inet(AF_INET6, IPPROTO_UDP),
        };
        let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        message.extend_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
        message.extend_from_slice(&[0; 8]); // sequence and port: one request at a time
        message.extend_from_slice(&body);
        message
    }

    fn inet_kind(self) -> Option<InetKind> {
        match self {
            Self::Unix => None,
            Self::Tcp4 | Self::Tcp6 => Some(InetKind::Tcp),
            Self::Udp4 | Self::Udp6 => Some(InetKind::Udp),
        }
    }
}

/// Every state, including the bound and inactive ones (bit 13, Linux 6.8), except those in which no
/// process holds the socket: a busy server has tens of thousands of them.
const HELD_STATES: u32 = !(1 << TCP_SYN_RECV | 1 << TCP_TIME_WAIT | 1 << TCP_NEW_SYN_RECV);

/// `struct inet_diag_req_v2`
fn inet_request(family: u8, protocol: u8, states: u32, local_port: u16) -> Vec<u8> {
    let mut body = vec![family, protocol, 0, 0];
    body.extend_from_slice(&states.to_ne_bytes());
    body.extend_from_slice(&local_port.to_be_bytes());
    body.extend_from_slice(&[0; 46]);
    body
}

/// `struct unix_diag_req`: every state, with names and peers.
fn unix_request() -> Vec<u8> {
    let mut body = vec![AF_UNIX, 0, 0, 0];
    body.extend_from_slice(&u32::MAX.to_ne_bytes());
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&(UDIAG_SHOW_NAME | UDIAG_SHOW_PEER).to_ne_bytes());
    body.extend_from_slice(&[0; 8]);
    body
}

/// How a reply datagram ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiagEnd {
    /// More datagrams follow.
    More,
    /// The table is complete.
    Done,
    /// The kernel refused, with this errno.
    Refused(i32),
}

/// Reads one datagram, passes each row to `row`, and returns whether more will follow.
pub fn read_datagram(table: DiagTable, bytes: &[u8], mut row: impl FnMut(SocketRow)) -> DiagEnd {
    let mut rest = bytes;
    while let Some(length) = u32_at(rest, 0).and_then(|length| usize::try_from(length).ok()) {
        let Some(message) = rest.get(..length).filter(|message| message.len() >= HEADER) else {
            break;
        };
        let body = &message[HEADER..];
        match u16_at(message, 4) {
            Some(NLMSG_DONE) => return DiagEnd::Done,
            Some(NLMSG_ERROR) => {
                let code = u32_at(body, 0).map_or(0, u32::cast_signed);
                return DiagEnd::Refused(code.wrapping_neg());
            }
            Some(SOCK_DIAG_BY_FAMILY) => {
                let found = match table.inet_kind() {
                    Some(kind) => inet_row(kind, body),
                    None => unix_row(body),
                };
                found.into_iter().for_each(&mut row);
            }
            _ => {}
        }
        rest = rest.get(align(length)..).unwrap_or(&[]);
    }
    DiagEnd::More
}

/// `struct inet_diag_msg`
fn inet_row(kind: InetKind, body: &[u8]) -> Option<SocketRow> {
    let family = *body.first()?;
    let state = *body.get(1)?;
    let local = SocketAddr::new(ip(family, body.get(8..24)?)?, port(body.get(4..6)?)?);
    let remote = SocketAddr::new(ip(family, body.get(24..40)?)?, port(body.get(6..8)?)?);
    let rx = u32_at(body, 56)?;
    let tx = u32_at(body, 60)?;
    let uid = u32_at(body, 64)?;
    let ino = u64::from(u32_at(body, 68)?);
    Some((
        ino,
        SocketRecord::Inet {
            kind,
            state,
            local,
            remote,
            rx,
            tx,
            uid,
        },
    ))
}

fn port(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

fn ip(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => {
            let four: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
            Some(IpAddr::V4(Ipv4Addr::from(four)))
        }
        AF_INET6 => {
            let sixteen: [u8; 16] = bytes.try_into().ok()?;
            Some(IpAddr::V6(Ipv6Addr::from(sixteen)))
        }
        _ => None,
    }
}

/// `struct unix_diag_msg` and its attributes
fn unix_row(body: &[u8]) -> Option<SocketRow> {
    let kind = *body.get(1)?;
    let state = *body.get(2)?;
    let ino = u64::from(u32_at(body, 4)?);
    let mut path = None;
    let mut peer = None;
    let mut shutdown = None;
    for (attribute, value) in attributes(body.get(16..)?) {
        match attribute {
            UNIX_DIAG_NAME => path = unix_name(value),
            UNIX_DIAG_PEER => peer = u32_at(value, 0).map(u64::from),
            UNIX_DIAG_SHUTDOWN => shutdown = value.first().copied(),
            _ => {}
        }
    }
    let record = SocketRecord::Unix {
        kind,
        listening: state == TCP_LISTEN,
        connected: state == TCP_ESTABLISHED || peer.is_some(),
        path,
        peer: peer.filter(|peer| *peer != 0),
        shutdown,
    };
    Some((ino, record))
}

/// Path names end at the first zero; abstract ones begin with one and may contain more, shown as
/// `@` as usual.
pub(crate) fn unix_name(value: &[u8]) -> Option<Box<[u8]>> {
    if value.first() == Some(&0) {
        return Some(
            value
                .iter()
                .map(|byte| if *byte == 0 { b'@' } else { *byte })
                .collect(),
        );
    }
    let end = value
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(value.len());
    (end > 0).then(|| value[..end].into())
}

fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)?;
        let value = rest.get(4..length)?;
        rest = rest.get(align(length)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

fn align(length: usize) -> usize {
    length.saturating_add(3) & !3
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{DiagEnd, DiagTable, read_datagram};
    use fdguard_proc::net::SocketRecord;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(16 + body.len())
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&[0; 10]);
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_unix_answer_gives_name_and_peer() {
        let mut body = vec![1, 1, 1, 0];
        body.extend_from_slice(&77u32.to_ne_bytes());
        body.extend_from_slice(&[0; 8]);
        body.extend_from_slice(&[9, 0, 0, 0]);
        body.extend_from_slice(b"/a/bc\0\0\0");
        body.extend_from_slice(&[8, 0, 2, 0]);
        body.extend_from_slice(&78u32.to_ne_bytes());
        let mut rows = Vec::new();
        let end = read_datagram(DiagTable::Unix, &message(20, &body), |row| rows.push(row));
        assert_eq!(end, DiagEnd::More);
        let (77, SocketRecord::Unix { path, peer, .. }) = &rows[0] else {
            panic!("{rows:?}")
        };
        assert_eq!((path.as_deref(), *peer), (Some(&b"/a/bc"[..]), Some(78)));
    }

    #[test]
    fn sockets_that_nobody_holds_are_not_asked_for() {
        let request = DiagTable::Tcp4.request();
        let states = u32::from_ne_bytes(request[20..24].try_into().unwrap());
        let asked = |state: u32| states >> state & 1 == 1;
        assert!(
            asked(1) && asked(8) && asked(10) && asked(13),
            "established, close-wait, listen, bound"
        );
        assert!(!asked(6), "time-wait");
    }

    #[test]
    fn a_request_for_a_port_names_states_and_port() {
        let request = DiagTable::Tcp6.request_for(1 << 10, 8080);
        assert_eq!(request.len(), DiagTable::Tcp6.request().len());
        assert_eq!(request[16..18], [10, 6]);
        assert_eq!(request[20..24], (1u32 << 10).to_ne_bytes());
        assert_eq!(request[24..26], [0x1f, 0x90]);
    }

    #[test]
    fn the_end_and_a_refusal_are_told_apart() {
        assert_eq!(
            read_datagram(DiagTable::Tcp4, &message(3, &[0; 4]), |_| ()),
            DiagEnd::Done
        );
        let refused = message(2, &(-13i32).to_ne_bytes());
        assert_eq!(
            read_datagram(DiagTable::Tcp4, &refused, |_| ()),
            DiagEnd::Refused(13)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            for table in [DiagTable::Unix, DiagTable::Tcp4, DiagTable::Udp6] {
                let _ = read_datagram(table, &bytes, |_| ());
            }
        }

        #[test]
        fn any_body_is_survived(body: Vec<u8>) {
            for table in [DiagTable::Unix, DiagTable::Tcp6] {
                let _ = read_datagram(table, &message(20, &body), |_| ());
            }
        }
    }
}
