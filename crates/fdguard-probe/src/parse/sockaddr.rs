//! Socket addresses as the kernel lays them out: bytes to names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::diag::unix_name;

const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const AF_NETLINK: u16 = 16;
const AF_PACKET: u16 = 17;
const AF_VSOCK: u16 = 40;

/// The name of one end of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketName {
    /// An address and a port.
    Inet(SocketAddr),
    /// A path, an abstract name with `@`, or none.
    Unix(Option<Box<[u8]>>),
    /// A netlink port, and the first 32 multicast groups as bits.
    Netlink {
        /// Port.
        port: u32,
        /// Group n is bit n-1.
        groups: u32,
    },
    /// What a packet socket listens for.
    Packet {
        /// Ethernet protocol number.
        protocol: u16,
        /// Index of the interface; 0 for all of them.
        interface: u32,
    },
    /// A virtual machine and a port in it.
    Vsock {
        /// Context id of the machine.
        cid: u32,
        /// Port.
        port: u32,
    },
}

impl SocketName {
    /// Reads a `struct sockaddr`; `None` for unknown families.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let family = u16::from_ne_bytes(take(bytes, 0)?);
        Some(match family {
            AF_UNIX => Self::Unix(unix_name(bytes.get(2..)?)),
            AF_INET => {
                let ip = IpAddr::V4(Ipv4Addr::from(take::<4>(bytes, 4)?));
                Self::Inet(SocketAddr::new(ip, u16::from_be_bytes(take(bytes, 2)?)))
            }
            AF_INET6 => {
                let ip = IpAddr::V6(Ipv6Addr::from(take::<16>(bytes, 8)?));
                Self::Inet(SocketAddr::new(ip, u16::from_be_bytes(take(bytes, 2)?)))
            }
            AF_NETLINK => Self::Netlink {
                port: u32::from_ne_bytes(take(bytes, 4)?),
                groups: u32::from_ne_bytes(take(bytes, 8)?),
            },
            AF_PACKET => Self::Packet {
                protocol: u16::from_be_bytes(take(bytes, 2)?),
                interface: u32::from_ne_bytes(take(bytes, 4)?),
            },
            AF_VSOCK => Self::Vsock {
                port: u32::from_ne_bytes(take(bytes, 4)?),
                cid: u32::from_ne_bytes(take(bytes, 8)?),
            },
            _ => return None,
        })
    }

    /// The address, if it is one.
    #[must_use]
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            Self::Inet(address) => Some(*address),
            _ => None,
        }
    }
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::SocketName;

    /// A `struct sockaddr`: the family in the machine's byte order, then its data.
    fn bytes(family: u16, rest: &[u8]) -> Vec<u8> {
        [&family.to_ne_bytes()[..], rest].concat()
    }

    #[test]
    fn each_family_has_its_own_layout() {
        let four = bytes(2, &[0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let name = SocketName::parse(&four).unwrap();
        assert_eq!(name.inet().unwrap().to_string(), "127.0.0.1:8080");
        let six = [&[0x00, 0x50, 0, 0, 0, 0][..], &[0; 15], &[1], &[0; 4]].concat();
        let name = SocketName::parse(&bytes(10, &six)).unwrap();
        assert_eq!(name.inet().unwrap().to_string(), "[::1]:80");
        assert_eq!(
            SocketName::parse(&bytes(1, b"/run/x\0")),
            Some(SocketName::Unix(Some((*b"/run/x").into())))
        );
        assert_eq!(
            SocketName::parse(&bytes(1, b"\0abc")),
            Some(SocketName::Unix(Some((*b"@abc").into())))
        );
        assert_eq!(
            SocketName::parse(&bytes(1, b"")),
            Some(SocketName::Unix(None))
        );
        let words = [&[0; 2][..], &7_u32.to_ne_bytes(), &9_u32.to_ne_bytes()].concat();
        assert_eq!(
            SocketName::parse(&bytes(16, &words)),
            Some(SocketName::Netlink { port: 7, groups: 9 })
        );
        assert_eq!(
            SocketName::parse(&bytes(40, &words)),
            Some(SocketName::Vsock { port: 7, cid: 9 })
        );
        let packet = [&[0x08, 0x00][..], &3_u32.to_ne_bytes()].concat();
        assert_eq!(
            SocketName::parse(&bytes(17, &packet)),
            Some(SocketName::Packet {
                protocol: 0x0800,
                interface: 3
            })
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            drop(SocketName::parse(&bytes));
        }
    }
}
