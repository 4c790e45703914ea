//! The bearer token of a server: `Authorization: Bearer TOKEN`, or as the password of `Basic`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// The token. It is never shown.
#[derive(Clone)]
pub struct BearerToken(Box<[u8]>);

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl BearerToken {
    /// Spaces and newlines around it do not count.
    pub fn new(text: &[u8]) -> Result<Self, String> {
        let text = text.trim_ascii();
        if text.len() < 16 {
            return Err("the token is too short: it needs at least 16 characters".to_owned());
        }
        if text.len() > 1024 || !text.iter().all(u8::is_ascii_graphic) {
            return Err(
                "the token must be at most 1024 printable ASCII characters without spaces"
                    .to_owned(),
            );
        }
        Ok(Self(text.into()))
    }

    /// Whether a header's value holds it. Takes constant time, to leak nothing about the token.
    #[must_use]
    pub fn allows(&self, authorization: Option<&[u8]>) -> bool {
        after_scheme(authorization, b"bearer ").is_some_and(|given| self.is(given))
    }

    /// Whether a header's value holds it as the password of HTTP Basic: for clients that can send
    /// nothing else, such as `go tool pprof`. Any user name will do. Constant time as well.
    #[must_use]
    pub fn allows_as_password(&self, authorization: Option<&[u8]>) -> bool {
        let Some(given) = after_scheme(authorization, b"basic ") else {
            return false;
        };
        let Ok(pair) = BASE64.decode(given) else {
            return false;
        };
        // A password may contain colons, a user name may not.
        let colon = pair.iter().position(|byte| *byte == b':');
        colon.is_some_and(|at| self.is(&pair[at + 1..]))
    }

    /// Looks at every byte, wherever the first difference is.
    fn is(&self, given: &[u8]) -> bool {
        if given.len() != self.0.len() {
            return false;
        }
        let differs = self
            .0
            .iter()
            .zip(given)
            .fold(0, |bits, (a, b)| bits | (a ^ b));
        std::hint::black_box(differs) == 0
    }
}

/// What follows the scheme in a header's value.
fn after_scheme<'a>(authorization: Option<&'a [u8]>, scheme: &[u8]) -> Option<&'a [u8]> {
    let (given, rest) = authorization?.split_at_checked(scheme.len())?;
    given
        .eq_ignore_ascii_case(scheme)
        .then_some(rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::{BASE64, BearerToken};

    #[test]
    fn only_the_whole_token_opens() {
        let token = BearerToken::new(b"0123456789abcdef\n").unwrap();
        assert!(token.allows(Some(b"Bearer 0123456789abcdef")));
        assert!(token.allows(Some(b"bearer  0123456789abcdef")));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcdef0",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert!(!token.allows(Some(wrong.as_bytes())), "{wrong}");
        }
        assert!(!token.allows(None));
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn the_token_is_a_password_with_any_user_name() {
        let token = BearerToken::new(b"0123456789:abcdef").unwrap();
        let allows = |pair: &[u8]| {
            let value = format!("bAsIc {}", BASE64.encode(pair));
            token.allows_as_password(Some(value.as_bytes()))
        };
        assert!(allows(b"pprof:0123456789:abcdef"));
        assert!(allows(b":0123456789:abcdef"));
        for wrong in [
            &b"0123456789:abcdef"[..],
            b"pprof:0123456789:abcdeF",
            b"pprof:0123456789:abcdef ",
            b"pprof:",
            b"",
            b"\xff",
        ] {
            assert!(!allows(wrong), "{}", String::from_utf8_lossy(wrong));
        }
        for wrong in ["Basic", "Basic %", "Basic 0123456789:abcdef", ""] {
            assert!(!token.allows_as_password(Some(wrong.as_bytes())), "{wrong}");
        }
        assert!(!token.allows_as_password(Some(b"Bearer 0123456789:abcdef")));
        assert!(!token.allows(Some(b"Basic cHByb2Y6MDEyMzQ1Njc4OTphYmNkZWY=")));
    }

    #[test]
    fn a_short_word_is_no_token() {
        assert!(BearerToken::new(b"short").is_err());
        assert!(BearerToken::new(b"0123456789 abcdef").is_err());
    }
}
