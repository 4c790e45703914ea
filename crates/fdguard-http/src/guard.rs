//! Access control: the name in the Host header, the page in Origin, and the token.
//!
//! A web page that is open on this machine can send requests to local addresses. It cannot forge
//! Host and Origin: a name that was rebound to 127.0.0.1 is still in Host, and a foreign page is in
//! Origin.

use std::net::{IpAddr, SocketAddr};

use fdguard_core::bearer::BearerToken;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::problem::Problem;

/// The rules of a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessRules<'a> {
    /// The token that a request must have; `None` if none is needed.
    pub token: Option<&'a BearerToken>,
    /// Whether it may also be the password of HTTP Basic. No answer asks for that, so a browser
    /// does not store it and send it by itself.
    pub as_password: bool,
    /// Accepted names in the Host header, in addition to the address itself and the names of the
    /// local machine.
    pub hosts: &'a [String],
    /// Accepted origins of web pages, as `https://example.org`; all others are rejected.
    pub origins: &'a [String],
    /// Whether the server speaks TLS: then its own pages have `https` origins.
    pub tls: bool,
}

/// The listener of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// From this peer, at this local address.
    Tcp {
        /// The address that was called.
        local: SocketAddr,
        /// The caller's.
        peer: SocketAddr,
    },
    /// At a socket file, whose permissions control access. No web page can connect to it.
    Unix {
        /// The peer's pid, if the kernel reports it.
        pid: Option<u32>,
    },
}

/// Rejects requests that a foreign web page would send.
pub fn check_names(
    rules: &AccessRules<'_>,
    door: Door,
    request: &http::request::Parts,
) -> Result<(), Problem> {
    let address = match door {
        Door::Tcp { local, .. } => {
            check_host(rules, local, request)?;
            Some(local)
        }
        Door::Unix { .. } => None,
    };
    check_origin(rules, address, &request.headers)
}

fn check_host(
    rules: &AccessRules<'_>,
    address: SocketAddr,
    request: &http::request::Parts,
) -> Result<(), Problem> {
    let mut given = request.headers.get_all(header::HOST).iter();
    let (Some(first), None) = (given.next(), given.next()) else {
        let detail = "a request must have exactly one Host header";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-host", detail));
    };
    let in_target = request.uri.authority().map(|it| it.as_str().as_bytes());
    let named = [Some(first.as_bytes()), in_target];
    let is_known = |name: &[u8]| {
        std::str::from_utf8(name).is_ok_and(|name| is_ours(name, address, rules.hosts))
    };
    match named.into_iter().flatten().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let name = String::from_utf8_lossy(name);
            let detail =
                format!("unknown Host {name:?}: start the server with --allow-host to accept it");
            let status = StatusCode::MISDIRECTED_REQUEST;
            Err(Problem::new(status, "wrong-host", detail))
        }
    }
}

/// Whether a Host header names this server.
fn is_ours(given: &str, address: SocketAddr, more: &[String]) -> bool {
    // Only the canonical form: a client that means this server does not send `+80` or `080`.
    let is_port = |text: &str| text == address.port().to_string();
    let name = if given.ends_with(']') {
        given
    } else {
        match given.rsplit_once(':') {
            Some((name, port)) if is_port(port) => name,
            Some(_) => return false,
            None => given,
        }
    };
    let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let ip = bare.unwrap_or(name).parse::<IpAddr>().ok();
    let is_local = name.eq_ignore_ascii_case("localhost") || ip.is_some_and(|ip| ip.is_loopback());
    let is_bound = ip.is_some_and(|ip| ip == address.ip());
    (is_local && address.ip().is_loopback())
        || is_bound
        || more.iter().any(|one| one.eq_ignore_ascii_case(name))
}

/// Whether a page comes from this server itself: its own address, with its port.
fn is_own_origin(origin: &str, address: SocketAddr, tls: bool) -> bool {
    let (scheme, usual) = if tls {
        ("https://", 443)
    } else {
        ("http://", 80)
    };
    let name = origin.strip_prefix(scheme).unwrap_or_default();
    // Without a port it would be the usual one, on which another server may listen.
    let has_port = name
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'));
    let is_usual = address.port() == usual;
    (has_port != is_usual) && is_ours(name, address, &[])
}

fn check_origin(
    rules: &AccessRules<'_>,
    address: Option<SocketAddr>,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let is_own = |origin: &HeaderValue| {
        let origin = origin.to_str().unwrap_or_default();
        address.is_some_and(|address| is_own_origin(origin, address, rules.tls))
    };
    let is_allowed = |origin: &HeaderValue| {
        let mut allowed = rules.origins.iter();
        allowed.any(|one| one.as_bytes().eq_ignore_ascii_case(origin.as_bytes())) || is_own(origin)
    };
    let foreign = headers
        .get_all(header::ORIGIN)
        .iter()
        .find(|origin| !is_allowed(origin));
    match foreign {
        None => Ok(()),
        Some(origin) => {
            let origin = String::from_utf8_lossy(origin.as_bytes());
            let detail = format!(
                "origin {origin:?} not allowed: start the server with --allow-origin to accept it"
            );
            Err(Problem::new(StatusCode::FORBIDDEN, "wrong-origin", detail))
        }
    }
}

/// Whether a request has the token, or none is needed.
pub fn has_token(rules: &AccessRules<'_>, headers: &HeaderMap) -> bool {
    check_token(rules, headers).is_ok()
}

/// Rejects a request without the token.
pub fn check_token(rules: &AccessRules<'_>, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(token) = rules.token else {
        return Ok(());
    };
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (given, more) = (all.next().map(HeaderValue::as_bytes), all.next());
    // Of two headers, a proxy in front may have checked the other.
    let is_known = token.allows(given) || rules.as_password && token.allows_as_password(given);
    if more.is_none() && is_known {
        return Ok(());
    }
    let detail = match (given, more) {
        (None, _) => "missing header `Authorization: Bearer TOKEN`",
        (_, Some(_)) => "a request must have exactly one Authorization header",
        (Some(_), None) => "invalid token",
    };
    let challenge = HeaderValue::from_static("Bearer realm=\"fdguard\"");
    let problem = Problem::new(StatusCode::UNAUTHORIZED, "no-token", detail);
    Err(problem.with(header::WWW_AUTHENTICATE, challenge))
}

/// Checks any names, for the fuzz target: the lines are the values of Host, Origin and
/// Authorization. A page of another server is not let in, nor a client without the token.
#[cfg(feature = "fuzzing")]
pub fn fuzz_guard(bytes: &[u8]) {
    const TOKEN: &[u8] = b"0123456789abcdef0123456789abcdef";
    let local = SocketAddr::from(([127, 0, 0, 1], 8127));
    let mut parts = http::Request::new(()).into_parts().0;
    let names = [header::HOST, header::ORIGIN, header::AUTHORIZATION];
    for (name, line) in names.into_iter().zip(bytes.split(|byte| *byte == b'\n')) {
        let Ok(value) = HeaderValue::from_bytes(line) else {
            return;
        };
        parts.headers.append(name, value);
    }
    let token = BearerToken::new(TOKEN).ok();
    let rules = AccessRules {
        token: token.as_ref(),
        as_password: false,
        hosts: &[],
        origins: &[],
        tls: false,
    };
    let door = Door::Tcp { local, peer: local };
    if check_names(&rules, door, &parts).is_ok() {
        let host = parts.headers.get(header::HOST).map(HeaderValue::as_bytes);
        let host = String::from_utf8_lossy(host.unwrap_or_default()).to_ascii_lowercase();
        let is_local = ["localhost", "127.", "[", "::", "0:"]
            .iter()
            .any(|it| host.starts_with(it));
        assert!(is_local, "{host}");
    }
    let given = parts.headers.get(header::AUTHORIZATION);
    if has_token(&rules, &parts.headers) {
        // White space around a value does not belong to it.
        assert!(given.is_some_and(|it| it.as_bytes().trim_ascii_end().ends_with(TOKEN)));
    }
}

#[cfg(test)]
mod tests {
    use super::{is_ours, is_own_origin};

    #[test]
    fn a_page_of_our_own_address_is_our_own() {
        let address = "127.0.0.1:8000".parse().unwrap();
        for own in [
            "http://127.0.0.1:8000",
            "http://localhost:8000",
            "http://[::1]:8000",
        ] {
            assert!(is_own_origin(own, address, false), "{own}");
        }
        for foreign in [
            "http://localhost",
            "http://[::1]",
            "http://localhost:80",
            "https://localhost:8000",
            "http://evil.example:8000",
            "localhost:8000",
            "null",
            "",
        ] {
            assert!(!is_own_origin(foreign, address, false), "{foreign}");
        }
        let usual = "127.0.0.1:80".parse().unwrap();
        assert!(is_own_origin("http://localhost", usual, false));
        assert!(is_own_origin("https://localhost:8000", address, true));
        assert!(!is_own_origin("http://localhost:8000", address, true));
    }

    #[test]
    fn names_that_were_bent_to_us_are_not_ours() {
        let address = "127.0.0.1:8000".parse().unwrap();
        for ours in [
            "127.0.0.1:8000",
            "localhost:8000",
            "LOCALHOST",
            "[::1]:8000",
            "127.0.0.1",
        ] {
            assert!(is_ours(ours, address, &[]), "{ours}");
        }
        for foreign in [
            "evil.example",
            "evil.example:8000",
            "localhost:80",
            "localhost.evil.example:8000",
            "10.0.0.1:8000",
            "",
            ":8000",
            "[::1]]:8000",
            "localhost:8000:8000",
            "127.0.0.1:+8000",
            "127.0.0.1:08000",
            "127.0.0.1: 8000",
            "127.0.0.1:",
        ] {
            assert!(!is_ours(foreign, address, &[]), "{foreign}");
        }
        let more = ["agents.example".to_owned()];
        assert!(is_ours("agents.example:8000", address, &more));
    }

    #[test]
    fn a_remote_address_is_not_called_localhost() {
        let address = "192.0.2.7:8000".parse().unwrap();
        assert!(is_ours("192.0.2.7:8000", address, &[]));
        assert!(!is_ours("localhost:8000", address, &[]));
        let any = "[2001:db8::1]:80".parse().unwrap();
        assert!(is_ours("[2001:db8::1]", any, &[]));
    }
}
