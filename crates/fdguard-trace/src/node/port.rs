//! Who listens on the inspector's port: the process itself, or somebody else.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;

use fdguard_proc::link::Link;
use fdguard_proc::net::{InetKind, SocketRecord, inet};

/// The state of a socket that accepts connections.
const LISTENING: u8 = 10;

/// Who has a port, in the network namespace of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortHolder {
    /// Nobody.
    Free,
    /// The process itself, at this address.
    Own(SocketAddr),
    /// Another process.
    Other,
}

impl PortHolder {
    /// The holder of a port now. A process whose descriptors cannot be read holds nothing.
    pub(crate) fn find(pid: u32, port: u16) -> Self {
        let mut listeners = listeners(pid, port).into_iter().peekable();
        if listeners.peek().is_none() {
            return Self::Free;
        }
        let own = sockets(pid);
        match listeners.find(|(ino, _)| own.contains(ino)) {
            Some((_, address)) => Self::Own(reachable(address)),
            None => Self::Other,
        }
    }
}

/// The sockets that accept connections on a port.
fn listeners(pid: u32, port: u16) -> Vec<(u64, SocketAddr)> {
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let bytes = fs::read(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        found.extend(
            inet(InetKind::Tcp, &bytes).filter_map(|(ino, record)| match record {
                SocketRecord::Inet { state, local, .. } => {
                    (state == LISTENING && local.port() == port).then_some((ino, local))
                }
                _ => None,
            }),
        );
    }
    found
}

/// The inodes of all sockets of a process.
fn sockets(pid: u32) -> HashSet<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let links = entries
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .filter_map(|link| Link::parse(link.as_os_str().as_bytes()).socket())
        .collect()
}

/// An address to connect to: who listens on all of them is on the loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::{PortHolder, reachable};

    #[test]
    fn a_port_has_a_holder() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let here = std::process::id();
        assert_eq!(
            PortHolder::find(here, address.port()),
            PortHolder::Own(address)
        );
        assert_eq!(PortHolder::find(1, address.port()), PortHolder::Other);
        drop(listener);
        assert_eq!(PortHolder::find(here, address.port()), PortHolder::Free);
    }

    #[test]
    fn all_addresses_are_reached_on_the_loopback() {
        let address = |text: &str| reachable(text.parse().unwrap()).to_string();
        assert_eq!(address("0.0.0.0:1"), "127.0.0.1:1");
        assert_eq!(address("[::]:1"), "[::1]:1");
        assert_eq!(address("10.0.0.1:1"), "10.0.0.1:1");
    }
}
