//! Socket records, and the text tables `/proc/PID/net/*` that contain them when netlink is
//! unavailable.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bstr::ByteSlice as _;

use crate::ascii::{decimal, hexadecimal, lines, split_at_byte, words};

/// The IP protocol of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InetKind {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// UDP with partial checksums.
    UdpLite,
    /// Raw IP: the local port is the number of the protocol.
    Raw,
    /// Unprivileged ICMP echoes: the local port is their id.
    Ping,
}

/// The kernel's record of one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketRecord {
    /// An IP socket.
    Inet {
        /// Protocol.
        kind: InetKind,
        /// TCP state number.
        state: u8,
        /// Local address.
        local: SocketAddr,
        /// Remote address; port 0 while not connected.
        remote: SocketAddr,
        /// Receive queue.
        rx: u32,
        /// Send queue.
        tx: u32,
        /// Owner.
        uid: u32,
    },
    /// A unix-domain socket.
    Unix {
        /// 1 stream, 2 datagram, 5 packets in sequence.
        kind: u8,
        /// Whether it accepts connections.
        listening: bool,
        /// Whether it has a peer; absent if only the peer's inode shows it.
        connected: bool,
        /// Its name; abstract ones begin with `@`.
        path: Option<Box<[u8]>>,
        /// Inode of its peer.
        peer: Option<u64>,
        /// What was shut down: bit 0 receiving, bit 1 sending; absent if the table lacks it.
        shutdown: Option<u8>,
    },
    /// A netlink socket.
    Netlink {
        /// Netlink family number.
        protocol: u8,
        /// Port.
        port: u32,
        /// The first 32 multicast groups: group n is bit n-1.
        groups: u32,
    },
    /// A packet socket.
    Packet {
        /// Ethernet protocol number.
        protocol: u16,
        /// 2 datagram, 3 raw.
        kind: u32,
        /// Index of the interface; 0 for all of them.
        interface: u32,
    },
}

/// One inode and its record.
pub type SocketRow = (u64, SocketRecord);

/// Rows of `tcp`, `tcp6`, `udp`, `udp6`, `raw`, `raw6`.
pub fn inet(kind: InetKind, bytes: &[u8]) -> impl Iterator<Item = SocketRow> {
    lines(bytes)
        .skip(1)
        .filter_map(move |line| inet_row(kind, line))
}

fn inet_row(kind: InetKind, line: &[u8]) -> Option<SocketRow> {
    let mut words = words(line).skip(1);
    let local = address(words.next()?)?;
    let remote = address(words.next()?)?;
    let state = u8::try_from(hexadecimal(words.next()?)?).ok()?;
    let (tx, rx) = split_at_byte(words.next()?, b':')?;
    let uid = decimal(words.nth(2)?)?;
    let ino = decimal(words.nth(1)?)?;
    Some((
        ino,
        SocketRecord::Inet {
            kind,
            state,
            local,
            remote,
            rx: u32::try_from(hexadecimal(rx)?).ok()?,
            tx: u32::try_from(hexadecimal(tx)?).ok()?,
            uid: u32::try_from(uid).ok()?,
        },
    ))
}

/// `0100007F:1F90`: the address as 32-bit words in the machine's byte order, the port as a number.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let (host, port) = split_at_byte(text, b':')?;
    let port = u16::try_from(hexadecimal(port)?).ok()?;
    let word = |chunk: &[u8]| Some(u32::try_from(hexadecimal(chunk)?).ok()?.to_ne_bytes());
    let ip = match host.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(host)?)),
        32 => {
            let mut bytes = [0; 16];
            for (slot, chunk) in bytes.chunks_exact_mut(4).zip(host.chunks_exact(8)) {
                slot.copy_from_slice(&word(chunk)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Rows of `unix`. The table has no peers.
pub fn unix(bytes: &[u8]) -> impl Iterator<Item = SocketRow> {
    lines(bytes).skip(1).filter_map(unix_row)
}

const SO_ACCEPTCON: u64 = 0x1_0000;
const SS_CONNECTED: u64 = 3;

fn unix_row(line: &[u8]) -> Option<SocketRow> {
    let rest = line.split_once_str(b": ")?.1;
    let (_references, rest) = take_word(rest)?;
    let (_protocol, rest) = take_word(rest)?;
    let (flags, rest) = take_word(rest)?;
    let (kind, rest) = take_word(rest)?;
    let (state, rest) = take_word(rest)?;
    let (ino, rest) = take_word(rest)?;
    let path = rest.strip_prefix(b" ").filter(|path| !path.is_empty());
    let record = SocketRecord::Unix {
        kind: u8::try_from(hexadecimal(kind)?).ok()?,
        listening: hexadecimal(flags)? & SO_ACCEPTCON != 0,
        connected: hexadecimal(state)? == SS_CONNECTED,
        path: path.map(Into::into),
        peer: None,
        shutdown: None,
    };
    Some((decimal(ino)?, record))
}

/// One word and what follows it, including the separating space: a name may begin with one.
fn take_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_start_with(|c| c == ' ');
    let end = text.find_byte(b' ').unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Rows of `netlink`: `sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode`.
pub fn netlink(bytes: &[u8]) -> impl Iterator<Item = SocketRow> {
    lines(bytes).skip(1).filter_map(|line| {
        let mut words = words(line).skip(1);
        let protocol = u8::try_from(decimal(words.next()?)?).ok()?;
        let port = u32::try_from(decimal(words.next()?)?).ok()?;
        let groups = u32::try_from(hexadecimal(words.next()?)?).ok()?;
        let ino = decimal(words.nth(5)?)?;
        let record = SocketRecord::Netlink {
            protocol,
            port,
            groups,
        };
        Some((ino, record))
    })
}

/// Rows of `packet`: `sk RefCnt Type Proto Iface R Rmem User Inode`.
pub fn packet(bytes: &[u8]) -> impl Iterator<Item = SocketRow> {
    lines(bytes).skip(1).filter_map(|line| {
        let mut words = words(line).skip(2);
        let kind = u32::try_from(decimal(words.next()?)?).ok()?;
        let protocol = u16::try_from(hexadecimal(words.next()?)?).ok()?;
        let interface = u32::try_from(decimal(words.next()?)?).ok()?;
        let ino = decimal(words.nth(3)?)?;
        let record = SocketRecord::Packet {
            protocol,
            kind,
            interface,
        };
        Some((ino, record))
    })
}

/// Indexes and names of the interfaces in `igmp`: the only text that has both for every interface.
pub fn interfaces(bytes: &[u8]) -> impl Iterator<Item = (u32, String)> {
    lines(bytes).skip(1).filter_map(|line| {
        // Lines of groups begin with white space.
        if !line.first()?.is_ascii_digit() {
            return None;
        }
        let mut words = words(line);
        let index = u32::try_from(decimal(words.next()?)?).ok()?;
        let name = words.next()?.trim_end_with(|c| c == ':');
        Some((index, name.to_str_lossy().into_owned()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{InetKind, SocketRecord, inet, interfaces, netlink, packet, unix};

    #[test]
    fn tcp_rows_of_a_real_kernel() {
        let text = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 0100007F:1F90 0200007F:01BB 08 00000002:00000010 00:00000000 00000000  1000        0 48213 1 0000000000000000 100 0 0 10 0\n";
        let (ino, record) = inet(InetKind::Tcp, text).next().unwrap();
        assert_eq!(ino, 48213);
        let SocketRecord::Inet {
            state,
            local,
            remote,
            rx,
            tx,
            uid,
            ..
        } = record
        else {
            panic!("{record:?}")
        };
        assert_eq!((state, rx, tx, uid), (8, 16, 2, 1000));
        assert_eq!(
            (local.to_string(), remote.to_string()),
            ("127.0.0.1:8080".into(), "127.0.0.2:443".into())
        );
    }

    #[test]
    fn tcp6_addresses_are_four_words() {
        let text = b"head\n   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7 1 0 100 0 0 10 0\n";
        let (_, record) = inet(InetKind::Tcp, text).next().unwrap();
        let SocketRecord::Inet { local, .. } = record else {
            panic!("{record:?}")
        };
        assert_eq!(local.to_string(), "[::1]:8080");
    }

    #[test]
    fn unix_names_may_hold_spaces() {
        let text = b"Num       RefCount Protocol Flags    Type St Inode Path\n0000000000000000: 00000002 00000000 00010000 0001 01 10932 /run/a b.sock\n0000000000000000: 00000003 00000000 00000000 0001 03 10933\n";
        let rows: Vec<_> = unix(text).collect();
        let SocketRecord::Unix {
            listening, path, ..
        } = &rows[0].1
        else {
            panic!()
        };
        assert!(*listening);
        assert_eq!(path.as_deref(), Some(&b"/run/a b.sock"[..]));
        let SocketRecord::Unix {
            connected, path, ..
        } = &rows[1].1
        else {
            panic!()
        };
        assert!(*connected && path.is_none());
    }

    #[test]
    fn netlink_and_packet_rows() {
        let text = b"sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n0000000000000000 15  77         00000001 0        0        0     2        0        812\n";
        assert_eq!(
            netlink(text).next(),
            Some((
                812,
                SocketRecord::Netlink {
                    protocol: 15,
                    port: 77,
                    groups: 1
                }
            ))
        );
        let text = b"sk       RefCnt Type Proto  Iface R Rmem   User   Inode\n0000000000000000 3      3    0003   2     1 0      0      9121\n";
        assert_eq!(
            packet(text).next(),
            Some((
                9121,
                SocketRecord::Packet {
                    protocol: 3,
                    kind: 3,
                    interface: 2
                }
            ))
        );
    }

    #[test]
    fn interfaces_by_number() {
        let text = b"Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n4\tlongname0123456:     1      V3\n";
        let found: Vec<_> = interfaces(text).collect();
        assert_eq!(
            found,
            [(1, "lo".to_owned()), (4, "longname0123456".to_owned())]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = inet(InetKind::Udp, &bytes).count();
            let _ = (unix(&bytes).count(), netlink(&bytes).count(), packet(&bytes).count());
            let _ = interfaces(&bytes).count();
        }

        #[test]
        fn any_fields_are_survived(words in proptest::collection::vec("[0-9A-F:. /]{0,20}", 0..14)) {
            let text = format!("head\n{}\n", words.join(" "));
            let _ = inet(InetKind::Tcp, text.as_bytes()).count();
            let _ = (unix(text.as_bytes()).count(), netlink(text.as_bytes()).count());
        }
    }
}
