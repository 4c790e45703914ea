//! Addresses: the host becomes a token, the port stays where it names a service.

// Addresses only: the part of the standard library that opens sockets is in the module of the same
// name.
use core::net::{IpAddr, SocketAddr};

use super::{Redactor, words};

/// The lowest ephemeral port by default.
const EPHEMERAL: u16 = 32768;

impl Redactor {
    /// A connection, `LOCAL->REMOTE`, or one address.
    pub fn connection(&mut self, target: &str) -> String {
        match target.split_once("->") {
            Some((local, remote)) => format!("{}->{}", self.address(local), self.address(remote)),
            None => self.address(target),
        }
    }

    /// An address with its port.
    pub fn address(&mut self, address: &str) -> String {
        if self.issued.contains(address.as_bytes()) {
            return address.to_owned();
        }
        let Ok(parsed) = address.parse::<SocketAddr>() else {
            return String::from_utf8_lossy(&self.path(address.as_bytes())).into_owned();
        };
        let host = match parsed.ip() {
            IpAddr::V4(ip) if ip.is_loopback() || ip.is_unspecified() => ip.to_string(),
            IpAddr::V6(ip) if ip.is_loopback() || ip.is_unspecified() => format!("[{ip}]"),
            ip => self.word(ip.to_string().as_bytes()),
        };
        let whole = format!("{host}:{}", self.port(parsed.port()));
        self.issued.insert(whole.as_bytes().to_vec());
        whole
    }

    /// Ephemeral ports stay numbers of that range: they distinguish the two ends.
    fn port(&mut self, port: u16) -> String {
        if words::is_service(port) {
            return port.to_string();
        }
        if port < EPHEMERAL {
            return self.word(format!("port {port}").as_bytes());
        }
        // There are at most as many such ports as numbers for them.
        let next = u16::try_from(self.ports.len()).unwrap_or(0);
        let given = self
            .ports
            .entry(port)
            .or_insert(EPHEMERAL.saturating_add(next));
        given.to_string()
    }
}
