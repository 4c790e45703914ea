//! The part of URLs that a probe needs: `http://HOST[:PORT][/PATH]`.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;

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
        // The path is part of the request's first line: nothing that could end it.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "{text:?}: percent-encode spaces and non-ASCII characters, such as %20"
            ));
        }
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        let is_full = scheme.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_alphabetic()));
        let full = if is_full { "" } else { "http://" };
        let uri: Uri = format!("{full}{text}")
            .parse()
            .map_err(|why| format!("{text:?}: {why}"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(format!(
                    "{text:?}: https is not supported; use exec:curl -fsS {text}"
                ));
            }
            _ => return Err(format!("{text:?}: use http://")),
        }
        let authority = uri.authority().map_or("", Authority::as_str);
        if authority.contains('@') {
            return Err(format!(
                "{text:?}: user names and passwords are not supported"
            ));
        }
        let target = if is_full && uri.port().is_none() {
            Endpoint {
                host: host_of(authority)?,
                port: 80,
            }
        } else {
            authority.parse()?
        };
        let path = uri.path_and_query().map(ToString::to_string);
        Ok(Self {
            target,
            path: path.unwrap_or_else(|| "/".to_owned()),
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
            ("web:80/a?b=http://c", "http://web:80/a?b=http://c"),
            (
                "http://h/a%20b/../c;d?e=%C3%A4",
                "http://h:80/a%20b/../c;d?e=%C3%A4",
            ),
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
            "ftp://h/",
            "http://h:80:80/",
            "http://[::1/",
        ] {
            assert!(bad.parse::<Url>().is_err(), "{bad}");
        }
        let error = "https://h/x".parse::<Url>().unwrap_err();
        assert!(error.contains("exec:curl -fsS https://h/x"), "{error}");
    }
}
