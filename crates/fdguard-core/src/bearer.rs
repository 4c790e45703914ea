//! The bearer token of a server: `Authorization: Bearer TOKEN`.

use std::fmt;

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
        let Some((scheme, given)) = authorization.and_then(|value| value.split_at_checked(7))
        else {
            return false;
        };
        let given = given.trim_ascii();
        if !scheme.eq_ignore_ascii_case(b"bearer ") || given.len() != self.0.len() {
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

#[cfg(test)]
mod tests {
    use super::BearerToken;

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
    fn a_short_word_is_no_token() {
        assert!(BearerToken::new(b"short").is_err());
        assert!(BearerToken::new(b"0123456789 abcdef").is_err());
    }
}
