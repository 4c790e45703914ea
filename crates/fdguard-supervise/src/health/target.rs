//! The target of a probe: host, port, and resolved addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

/// A host and a port, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A numeric address, or a name; without the brackets of IPv6.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Endpoint {
    /// Its addresses, to be tried in this order. Numeric addresses and `localhost` need no lookup;
    /// any other name is resolved **now**, which may wait for a name server: call it once, before
    /// the loop. A later change of the name is not followed.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        if self.host.eq_ignore_ascii_case("localhost") {
            let both = [
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                IpAddr::V6(Ipv6Addr::LOCALHOST),
            ];
            return Ok(both.map(|ip| SocketAddr::new(ip, self.port)).to_vec());
        }
        let asked = (self.host.as_str(), self.port).to_socket_addrs();
        let found: Vec<_> = asked
            .map_err(|why| format!("cannot resolve {}: {why}", self.host))?
            .take(8)
            .collect();
        if found.is_empty() {
            return Err(format!("cannot resolve {}: no address found", self.host));
        }
        Ok(found)
    }
}

impl FromStr for Endpoint {
    type Err = String;

    /// `8080`, `localhost:8080`, `10.0.0.1:8080`, `[::1]:8080`. Without a host it is `localhost`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port),
            None => ("localhost", text),
        };
        let number = port.parse::<u16>().ok().filter(|port| *port != 0);
        let port = number.ok_or_else(|| format!("{port:?} is not a port: use 1 to 65535"))?;
        Ok(Self {
            host: host_of(host)?,
            port,
        })
    }
}

/// A host without the brackets that IPv6 addresses need before a port.
pub(super) fn host_of(text: &str) -> Result<String, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Some(bare) = bare {
        return match bare.parse::<Ipv6Addr>() {
            Ok(_) => Ok(bare.to_owned()),
            Err(_) => Err(format!("{text:?} is not an IPv6 address")),
        };
    }
    if text.contains(':') {
        return Err(format!(
            "{text:?}: put IPv6 addresses in brackets, such as [::1]:8080"
        ));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if text.is_empty() || !text.chars().all(plain) {
        return Err(format!("{text:?} is not a host name or IP address"));
    }
    Ok(text.to_owned())
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    #[test]
    fn hosts_and_ports_are_read_and_written_alike() {
        for (text, shown) in [
            ("8080", "localhost:8080"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("[::1]:65535", "[::1]:65535"),
            ("db-1.internal:5432", "db-1.internal:5432"),
        ] {
            let target: Endpoint = text.parse().unwrap();
            assert_eq!(target.to_string(), shown);
        }
        for bad in [
            "", "0", "65536", "::1:80", "[::g]:1", "a b:1", ":80", "host:",
        ] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_and_localhost_ask_nobody() {
        let shown = |text: &str| {
            let target: Endpoint = text.parse().unwrap();
            let found = target.addresses().unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(shown("9"), ["127.0.0.1:9", "[::1]:9"]);
        assert_eq!(shown("[::1]:9"), ["[::1]:9"]);
        assert_eq!(shown("192.0.2.7:9"), ["192.0.2.7:9"]);
    }
}
