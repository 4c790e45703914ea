//! Requests and responses as plain types, and how to parse a URL and print it without secrets.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::failure::CallFailure;

/// A request.
#[derive(Clone, Debug, Default)]
pub struct CallRequest {
    /// `GET`, `POST`, …; empty means `GET`.
    pub method: String,
    /// `http://…` or `https://…`, without user and password.
    pub url: String,
    /// Sent as given. `Host` is added if missing; the client sets length and connection headers
    /// itself.
    pub headers: Vec<(String, String)>,
    /// Sent with its length.
    pub body: Vec<u8>,
    /// How long each step may take.
    pub timeouts: Timeouts,
}

impl CallRequest {
    /// A GET request.
    #[must_use]
    pub fn get(url: &str) -> Self {
        Self {
            method: "GET".to_owned(),
            url: url.to_owned(),
            ..Self::default()
        }
    }

    /// Sends something.
    #[must_use]
    pub fn post(url: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            method: "POST".to_owned(),
            body: body.into(),
            ..Self::get(url)
        }
    }
}

/// Time limits of each step; `None` means no limit.
///
/// They are checked while the owner waits. An owner that does something else is not late: the
/// detector of stale calls covers that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Name, connection and TLS together.
    pub connect: Option<Duration>,
    /// From the last sent byte to the first byte of the answer.
    pub first_byte: Option<Duration>,
    /// Between two bytes of the answer.
    pub idle: Option<Duration>,
    /// From the start of the call to its last byte.
    pub total: Option<Duration>,
}

impl Default for Timeouts {
    /// Ten seconds to connect, two minutes of silence, no limit in total: a stream of a model may
    /// be long.
    fn default() -> Self {
        Self {
            connect: Some(Duration::from_secs(10)),
            first_byte: Some(Duration::from_secs(120)),
            idle: Some(Duration::from_secs(120)),
            total: None,
        }
    }
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResponse {
    /// `200`, …
    pub status: u16,
    /// In the order of their coming, names in small letters; bytes that are not UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
}

impl CallResponse {
    /// The first header of that name, which is in small letters.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn from_parts(status: http::StatusCode, headers: &HeaderMap) -> Self {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        Self {
            status: status.as_u16(),
            headers: headers
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), text(value)))
                .collect(),
        }
    }
}

/// Scheme, host and port. Calls with the same origin share connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) is_tls: bool,
    /// Without the brackets of IPv6.
    pub(super) host: String,
    pub(super) port: u16,
}

/// A validated request: it can be sent, and sent again if the first connection was already dead.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub(super) origin: Origin,
    pub(super) method: Method,
    pub(super) path: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) timeouts: Timeouts,
}

/// Headers that define the message's framing or the fate of the connection.
const OURS: [&str; 7] = [
    "connection",
    "content-length",
    "expect",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Ready {
    pub(super) fn try_from_request(request: CallRequest) -> Result<Self, CallFailure> {
        let uri: Uri = request.url.parse().map_err(|error| {
            CallFailure::Bad(format!("invalid URL {}: {error}", shown(&request.url)))
        })?;
        let origin = origin(&uri, &request.url)?;
        let mut headers = headers(&request.headers)?;
        if !headers.contains_key(http::header::HOST) {
            headers.insert(http::header::HOST, host_header(&uri, &origin)?);
        }
        Ok(Self {
            origin,
            method: method(&request.method)?,
            path: path(&uri)?,
            headers,
            body: Bytes::from(request.body),
            timeouts: request.timeouts,
        })
    }

    /// Whether the request is idempotent.
    pub(super) fn is_repeatable(&self) -> bool {
        self.method.is_idempotent()
    }
}

fn method(word: &str) -> Result<Method, CallFailure> {
    if word.is_empty() {
        return Ok(Method::GET);
    }
    let method = Method::from_bytes(word.as_bytes())
        .map_err(|_invalid| CallFailure::Bad(format!("invalid HTTP method {word:?}")))?;
    if method == Method::CONNECT {
        return Err(CallFailure::Bad(
            "unsupported HTTP method CONNECT".to_owned(),
        ));
    }
    Ok(method)
}

fn origin(uri: &Uri, url: &str) -> Result<Origin, CallFailure> {
    let bad = |why: &str| CallFailure::Bad(format!("invalid URL {}: {why}", shown(url)));
    let is_tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(bad("it must start with http:// or https://")),
    };
    let authority = uri.authority().ok_or_else(|| bad("it has no host"))?;
    if authority.as_str().contains('@') {
        return Err(bad(
            "it must not contain a user name or password; send an authorization header",
        ));
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let host = bare.unwrap_or(host).to_ascii_lowercase();
    if host.is_empty() {
        return Err(bad("it has no host"));
    }
    let port = match authority.port() {
        Some(port) => port.as_u16(),
        None if authority.as_str().ends_with(':')
            || bare.is_some()
            || !has_port(authority.as_str()) =>
        {
            if is_tls {
                443
            } else {
                80
            }
        }
        None => return Err(bad("the port must be a number from 0 to 65535")),
    };
    Ok(Origin { is_tls, host, port })
}

fn has_port(authority: &str) -> bool {
    authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty())
}

fn path(uri: &Uri) -> Result<Uri, CallFailure> {
    let text = uri.path_and_query().map_or("/", |path| path.as_str());
    let text = if text.starts_with('/') {
        text.to_owned()
    } else {
        format!("/{text}")
    };
    text.parse()
        .map_err(|error| CallFailure::Bad(format!("invalid path: {error}")))
}

fn host_header(uri: &Uri, origin: &Origin) -> Result<HeaderValue, CallFailure> {
    let text = uri
        .authority()
        .map_or(origin.host.as_str(), |authority| authority.as_str());
    HeaderValue::from_str(text).map_err(|error| CallFailure::Bad(format!("invalid host: {error}")))
}

fn headers(given: &[(String, String)]) -> Result<HeaderMap, CallFailure> {
    let mut headers = HeaderMap::with_capacity(given.len() + 1);
    for (name, value) in given {
        let known = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_invalid| CallFailure::Bad(format!("invalid header name {name:?}")))?;
        if OURS.contains(&known.as_str()) {
            return Err(CallFailure::Bad(format!(
                "cannot set header {known}: the host sets it"
            )));
        }
        // The value is not repeated: it may be a key.
        let value = HeaderValue::from_str(value).map_err(|_invalid| {
            CallFailure::Bad(format!(
                "invalid value for header {known}: it contains characters that HTTP does not allow"
            ))
        })?;
        headers.append(known, value);
    }
    Ok(headers)
}

/// A URL that is safe to log: without user name and password, and with all query values hidden,
/// because any of them may be a key.
pub(super) fn shown(url: &str) -> String {
    let url = url.split('#').next().unwrap_or_default();
    let (before, query) = match url.split_once('?') {
        Some((before, query)) => (before, Some(query)),
        None => (url, None),
    };
    let mut text = without_user(before);
    if let Some(query) = query {
        let hidden: Vec<String> = query.split('&').map(hide).collect();
        text.push('?');
        text.push_str(&hidden.join("&"));
    }
    text
}

fn without_user(url: &str) -> String {
    let (scheme, rest) = url
        .split_once("://")
        .map_or(("", url), |(scheme, rest)| (scheme, rest));
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let mark = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{mark}{host}{path}")
}

fn hide(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, _)) => format!("{name}=…"),
        None if pair.is_empty() => String::new(),
        None => "…".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{CallRequest, Ready, shown};

    fn ready(url: &str) -> Result<Ready, String> {
        Ready::try_from_request(CallRequest::get(url)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("https://a.b/c?key=SECRET&x=1", "https://a.b/c?key=…&x=…"),
            ("https://user:SECRET@a.b:1/c#SECRET", "https://a.b:1/c"),
            ("http://a.b?SECRET", "http://a.b?…"),
            ("http://a/p@th", "http://a/p@th"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn a_url_says_who_is_talked_to() {
        for (url, host, port, path, header) in [
            ("http://a.b", "a.b", 80, "/", "a.b"),
            ("https://A.b/c?d=e", "a.b", 443, "/c?d=e", "A.b"),
            ("http://[::1]:81/x", "::1", 81, "/x", "[::1]:81"),
            ("https://[::1]/x", "::1", 443, "/x", "[::1]"),
            ("http://127.0.0.1:8?q", "127.0.0.1", 8, "/?q", "127.0.0.1:8"),
        ] {
            let ready = ready(url).unwrap();
            assert_eq!(
                (ready.origin.host.as_str(), ready.origin.port),
                (host, port)
            );
            assert_eq!(ready.path.to_string(), path);
            assert_eq!(ready.headers["host"], header);
        }
    }

    #[test]
    fn a_bad_request_is_one_clear_line_without_secrets() {
        for (url, expected) in [
            (
                "ftp://a/",
                "invalid URL ftp://a/: it must start with http:// or https://",
            ),
            (
                "/x",
                "invalid URL /x: it must start with http:// or https://",
            ),
            (
                "https://u:SECRET@a/",
                "invalid URL https://a/: it must not contain a user name or password; send an authorization header",
            ),
        ] {
            assert_eq!(ready(url).unwrap_err(), expected);
        }
        assert!(ready("http://a:99999/").unwrap_err().contains("a:99999"));
        assert!(ready("http://a b/").unwrap_err().contains("invalid URL"));
        let mut request = CallRequest::get("http://a/");
        request.headers = vec![("x".to_owned(), "SECRET\n".to_owned())];
        let line = Ready::try_from_request(request.clone())
            .unwrap_err()
            .to_string();
        assert_eq!(
            line,
            "invalid value for header x: it contains characters that HTTP does not allow"
        );
        request.headers = vec![("Transfer-Encoding".to_owned(), "chunked".to_owned())];
        let line = Ready::try_from_request(request).unwrap_err().to_string();
        assert_eq!(
            line,
            "cannot set header transfer-encoding: the host sets it"
        );
    }
}
