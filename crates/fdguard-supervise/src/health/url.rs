//! The part of URLs that a probe needs: `http://HOST[:PORT][/PATH]`.

use std::fmt;
use std::str::FromStr;

use super::target::{Endpoint, host_of};

/// The target and the path of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host and port.
    pub target: Endpoint,
    /// Path and query, with the first slash.
    pub path: String,
}

impl FromStr for Url {
    type Err = String;

    /// `http://HOST[:PORT][/PATH]`, `HOST:PORT/PATH` or `PORT/PATH`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text
            .get(..8)
            .is_some_and(|start| start.eq_ignore_ascii_case("https://"))
        {
            return Err(format!(
                "{text:?}: https is not supported; use exec:curl -fsS {text}"
            ));
        }
        let is_full = text
            .get(..7)
            .is_some_and(|start| start.eq_ignore_ascii_case("http://"));
        let rest = if is_full { &text[7..] } else { text };
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(format!(
                "{text:?}: user names and passwords are not supported"
            ));
        }
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.ends_with(']'));
        let target = if is_full && !has_port {
            Endpoint {
                host: host_of(authority)?,
                port: 80,
            }
        } else {
            authority.parse()?
        };
        // Part of the request's first line: nothing that could end it.
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "{text:?}: percent-encode spaces and non-ASCII characters, such as %20"
            ));
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self {
            target,
            path: format!("{slash}{path}"),
        })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.target, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::Url;

    #[test]
    fn addresses_are_read_in_their_usual_forms() {
        for (text, shown) in [
            ("http://localhost", "http://localhost:80/"),
            (
                "HTTP://127.0.0.1:8080/a?b=c#d",
                "http://127.0.0.1:8080/a?b=c",
            ),
            ("http://[::1]", "http://[::1]:80/"),
            ("http://[::1]:81?x", "http://[::1]:81/?x"),
            ("8787/health", "http://localhost:8787/health"),
            ("web:80/", "http://web:80/"),
        ] {
            assert_eq!(text.parse::<Url>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        for bad in [
            "",
            "/x",
            "http://",
            "http://a b/",
            "http://u:p@h/",
            "http://h/a b",
            "http://h/ä",
            "http://h:0/",
        ] {
            assert!(bad.parse::<Url>().is_err(), "{bad}");
        }
        let error = "https://h/x".parse::<Url>().unwrap_err();
        assert!(error.contains("exec:curl -fsS https://h/x"), "{error}");
    }
}
