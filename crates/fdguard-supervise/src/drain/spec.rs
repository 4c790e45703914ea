//! The syntax of a drain: `HUP`, `http://127.0.0.1:8080/drain`, `exec:./drain.sh`, `none`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use rustix::process::Signal;

/// How to ask a program to finish its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DrainSpec {
    /// No drain: it is stopped at once, with the usual grace period.
    #[default]
    None,
    /// This signal to the program itself.
    Signal(i32),
    /// A POST request. 202 means that the drain began; any other 2xx that it is finished.
    Http(DrainTarget),
    /// A shell command; `FDGUARD_PID` is the program. Its end is the end of the drain.
    Exec(String),
}

/// Where a request goes. Only numeric addresses and `localhost`: resolving a name could take long
/// and lead anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainTarget {
    /// Tried in this order.
    pub addresses: Vec<SocketAddr>,
    /// The host as written.
    pub host: String,
    /// Path and query.
    pub path: String,
}

/// Why a drain is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadDrain(String);

/// Signals that can be sent to a program.
const SIGNALS: &[(&str, Signal)] = &[
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("TERM", Signal::TERM),
    ("WINCH", Signal::WINCH),
];

impl DrainSpec {
    /// The signal to send at the start.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        match self {
            Self::Signal(signal) => Some(*signal),
            _ => None,
        }
    }
}

impl TryFrom<String> for DrainSpec {
    type Error = BadDrain;

    fn try_from(text: String) -> Result<Self, BadDrain> {
        text.parse()
    }
}

impl FromStr for DrainSpec {
    type Err = BadDrain;

    fn from_str(text: &str) -> Result<Self, BadDrain> {
        let text = text.trim();
        if text == "none" {
            return Ok(Self::None);
        }
        if let Some(script) = text.strip_prefix("exec:") {
            let script = script.trim();
            let none = || BadDrain("exec: requires a command, such as exec:./drain.sh".to_owned());
            return (!script.is_empty())
                .then(|| Self::Exec(script.to_owned()))
                .ok_or_else(none);
        }
        if text.starts_with("https:") {
            let why = "https is not supported: use http:// to this machine, or a command such as exec:curl …";
            return Err(BadDrain(format!("{text:?}: {why}")));
        }
        if let Some(rest) = text.strip_prefix("http:") {
            // Both `http:URL` and the URL itself are accepted.
            let url = rest.strip_prefix("http:").unwrap_or(rest);
            return target(url)
                .map(Self::Http)
                .map_err(|why| BadDrain(format!("{text:?}: {why}")));
        }
        let name = text.strip_prefix("signal:").unwrap_or(text);
        signal(name).map(Self::Signal).ok_or_else(|| {
            let names: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
            let signals = names.join(", ");
            BadDrain(format!("{text:?} is not a drain: use a signal ({signals}), http://127.0.0.1:PORT/PATH, exec:COMMAND or none"))
        })
    }
}

fn signal(name: &str) -> Option<i32> {
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    let mut known = SIGNALS.iter();
    known
        .find(|(name, _)| *name == short)
        .map(|(_, signal)| signal.as_raw())
}

fn target(url: &str) -> Result<DrainTarget, &'static str> {
    let rest = url.strip_prefix("//").ok_or("use http://HOST:PORT/PATH")?;
    let (host, path) = match rest.find(['/', '?']) {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    if path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err("the path must not contain spaces");
    }
    let path = if path.starts_with('?') {
        format!("/{path}")
    } else {
        path.to_owned()
    };
    Ok(DrainTarget {
        addresses: addresses(host).ok_or(
            "the host must be an IP address or localhost, such as http://127.0.0.1:8080/drain",
        )?,
        host: host.to_owned(),
        path,
    })
}

fn addresses(host: &str) -> Option<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return Some(vec![address]);
    }
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Some(vec![SocketAddr::new(address, 80)]);
    }
    let port = match host.strip_prefix("localhost")? {
        "" => 80,
        rest => rest.strip_prefix(':')?.parse().ok()?,
    };
    let both = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    Some(both.map(|address| SocketAddr::new(address, port)).to_vec())
}

#[cfg(test)]
mod tests {
    use super::{DrainSpec, DrainTarget};

    fn http(text: &str) -> DrainTarget {
        match text.parse() {
            Ok(DrainSpec::Http(target)) => target,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn drains_as_people_write_them() {
        for text in ["HUP", "SIGHUP", "hup", "signal:HUP"] {
            assert_eq!(text.parse(), Ok(DrainSpec::Signal(1)), "{text}");
        }
        assert_eq!("none".parse(), Ok(DrainSpec::None));
        assert_eq!(
            "exec: ./drain.sh now".parse(),
            Ok(DrainSpec::Exec("./drain.sh now".into()))
        );
        let target = http("http://127.0.0.1:8080/drain?wait=1");
        assert_eq!(
            (target.host.as_str(), target.path.as_str()),
            ("127.0.0.1:8080", "/drain?wait=1")
        );
        assert_eq!(http("http:http://127.0.0.1:8080/drain?wait=1"), target);
        assert_eq!(http("http://localhost:81").addresses.len(), 2);
        assert_eq!(
            http("http://[::1]:81/x").addresses[0].to_string(),
            "[::1]:81"
        );
        assert_eq!(http("http://127.0.0.1?x").path, "/?x");
        assert_eq!(http("http://10.0.0.1/").addresses[0].port(), 80);
    }

    #[test]
    fn what_is_none_is_told_in_one_line() {
        for (text, said) in [
            ("HOP", "is not a drain: use a signal (HUP,"),
            ("KILL", "is not a drain"),
            ("", "is not a drain"),
            ("exec:", "requires a command"),
            ("https://127.0.0.1/", "https is not supported"),
            ("http://example.org/drain", "an IP address or localhost"),
            ("http://localhost:x/", "an IP address or localhost"),
            ("http://127.0.0.1:99999/", "an IP address or localhost"),
            ("http://127.0.0.1/a b", "must not contain spaces"),
            ("http:127.0.0.1", "http://HOST:PORT/PATH"),
        ] {
            let error = text.parse::<DrainSpec>().unwrap_err().to_string();
            assert!(
                error.contains(said) && !error.contains('\n'),
                "{text}: {error}"
            );
        }
    }
}
