//! `--ready`: the readiness check of a server.

use std::str::FromStr;

use regex::bytes::Regex;

/// When a server is ready.
#[derive(Clone, Debug)]
pub enum ReadyArg {
    /// The address accepts connections.
    Tcp {
        /// Host.
        host: String,
        /// Port.
        port: u16,
    },
    /// A request is answered, with anything below 500.
    Http {
        /// Host.
        host: String,
        /// Port.
        port: u16,
        /// Path and query.
        path: String,
    },
    /// A line of its output matches.
    Line(Box<Regex>),
}

impl FromStr for ReadyArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is not tcp:PORT, tcp:HOST:PORT, http://HOST:PORT/PATH or line:REGEX")
        };
        let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
        match kind {
            "tcp" => {
                let (host, port) = rest.rsplit_once(':').unwrap_or(("127.0.0.1", rest));
                let port = port.parse().ok().filter(|port| *port > 0);
                let port = port.ok_or_else(wrong)?;
                let host = unbracketed(host).to_owned();
                Ok(Self::Tcp { host, port })
            }
            "http" => http(rest).ok_or_else(wrong),
            "line" => match Regex::new(rest) {
                Ok(regex) => Ok(Self::Line(Box::new(regex))),
                Err(error) => Err(format!(
                    "{rest:?} is not a regular expression: {}",
                    first(&error)
                )),
            },
            _ => Err(wrong()),
        }
    }
}

/// The last line of the regex error, which states the problem.
fn first(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().to_owned()
}

/// Accepts `http:URL` and `http://…`; the URL may have its own `http://` or none.
fn http(rest: &str) -> Option<ReadyArg> {
    let rest = rest.strip_prefix("http:").unwrap_or(rest);
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if authority.is_empty() || !is_plain(authority) || !is_plain(path) {
        return None;
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, 80),
    };
    Some(ReadyArg::Http {
        host: unbracketed(host).to_owned(),
        port,
        path: path.to_owned(),
    })
}

fn unbracketed(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::ReadyArg;

    fn shown(text: &str) -> String {
        match text.parse::<ReadyArg>() {
            Ok(ReadyArg::Tcp { host, port }) => format!("tcp {host} {port}"),
            Ok(ReadyArg::Http { host, port, path }) => format!("http {host} {port} {path}"),
            Ok(ReadyArg::Line(regex)) => format!("line {regex}"),
            Err(error) => format!("error {error}"),
        }
    }

    #[test]
    fn every_way_of_being_ready_is_understood() {
        assert_eq!(shown("tcp:8080"), "tcp 127.0.0.1 8080");
        assert_eq!(shown("tcp:[::1]:80"), "tcp ::1 80");
        assert_eq!(
            shown("http:http://localhost:8080/up?x=1"),
            "http localhost 8080 /up?x=1"
        );
        assert_eq!(shown("http://localhost/up"), "http localhost 80 /up");
        assert_eq!(shown("http:[::1]:81"), "http ::1 81 /");
        assert_eq!(shown("line:^listening on \\d+"), "line ^listening on \\d+");
    }

    #[test]
    fn a_slip_is_told() {
        for wrong in [
            "",
            "8080",
            "tcp:",
            "tcp:0",
            "tcp:99999",
            "http:",
            "udp:1",
            "https://a/",
        ] {
            assert!(shown(wrong).starts_with("error"), "{wrong}");
        }
        assert!(shown("line:(").contains("not a regular expression"));
    }
}
