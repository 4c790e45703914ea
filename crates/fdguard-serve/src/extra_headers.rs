//! Headers that a server needs besides those of its protocol: a tenant of Mimir, a token of a
//! gateway. They may be secret, so their values are never shown.

use http::{HeaderName, HeaderValue, header};

/// Headers that each request has anyway; two of one kind would contradict each other.
const RESERVED: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::HOST,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::USER_AGENT,
];

/// Headers for every request to one server.
#[derive(Clone, Default)]
pub struct ExtraHeaders(Vec<(HeaderName, HeaderValue)>);

impl std::fmt::Debug for ExtraHeaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.0.iter().map(|(name, _)| name.as_str());
        f.debug_list().entries(names).finish()
    }
}

impl ExtraHeaders {
    /// Reads lines of the form `Name: value`. Empty lines and those that begin with `#` do not
    /// count. An error names the line, not what is in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for (line, number) in text.lines().zip(1_u32..) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) =
                header_of(line).ok_or_else(|| format!("line {number} is not Name: value"))?;
            if RESERVED.contains(&name) {
                return Err(format!(
                    "line {number}: fdguard sets the header {name} itself"
                ));
            }
            if headers.iter().any(|(known, _)| *known == name) {
                return Err(format!("line {number}: the header {name} is there twice"));
            }
            headers.push((name, value));
        }
        if headers.is_empty() {
            return Err("it has no line of the form Name: value".to_owned());
        }
        Ok(Self(headers))
    }

    /// Whether there is a token among them.
    #[must_use]
    pub fn has_authorization(&self) -> bool {
        self.0
            .iter()
            .any(|(name, _)| *name == header::AUTHORIZATION)
    }

    /// All of them.
    pub(crate) fn to_vec(&self) -> Vec<(HeaderName, HeaderValue)> {
        self.0.clone()
    }
}

fn header_of(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let value = value.trim();
    let mut value: HeaderValue = value.parse().ok().filter(|_| !value.is_empty())?;
    value.set_sensitive(true);
    Some((name.parse().ok()?, value))
}

#[cfg(test)]
mod tests {
    use super::ExtraHeaders;

    #[test]
    fn headers_are_read_from_lines() {
        let text = "# for Mimir\nX-Scope-OrgID: shop\r\n\nAuthorization: Basic czNjcmV0: x\n";
        let headers = ExtraHeaders::parse(text).unwrap();
        let read: Vec<_> = headers.0.iter().collect();
        assert_eq!(
            read[0],
            &("x-scope-orgid".parse().unwrap(), "shop".parse().unwrap())
        );
        assert_eq!(read[1].1, "Basic czNjcmV0: x");
        assert!(headers.has_authorization());
        let shown = format!("{headers:?}");
        assert_eq!(shown, "[\"x-scope-orgid\", \"authorization\"]", "no values");
        assert!(!ExtraHeaders::parse("a: b").unwrap().has_authorization());
    }

    #[test]
    fn a_malformed_line_is_named_and_not_shown() {
        for (text, why) in [
            ("a: b\ns3cret", "line 2 is not Name: value"),
            ("s3 cret: x", "line 1 is not Name: value"),
            ("a: s3cret\u{7}", "line 1 is not Name: value"),
            ("a:", "line 1 is not Name: value"),
            (
                "Host: s3cret",
                "line 1: fdguard sets the header host itself",
            ),
            ("a: 1\nA: s3cret", "line 2: the header a is there twice"),
            ("", "it has no line of the form Name: value"),
            ("# s3cret", "it has no line of the form Name: value"),
        ] {
            assert_eq!(ExtraHeaders::parse(text).unwrap_err(), why, "{text:?}");
        }
    }
}
