//! The word that lets a caller see names: `Authorization: Bearer TOKEN`.

use std::path::PathBuf;
use std::str::FromStr;
use std::{env, fmt, fs};

use serde::Deserialize;

/// Where the token comes from. Never from the command line itself: everybody can read that.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Source {
    /// `file:PATH`
    File(PathBuf),
    /// `env:NAME`
    Environment(String),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            Some(("env", name)) if !name.is_empty() && !name.contains(['=', '\0']) => {
                Ok(Self::Environment(name.to_owned()))
            }
            _ => Err("a token comes from file:PATH or env:NAME".to_owned()),
        }
    }
}

impl TryFrom<String> for Source {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The token. It is never shown.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads it, once, before the loop.
    pub fn read(source: &Source) -> Result<Self, String> {
        match source {
            Source::File(path) => {
                let text = fs::read(path).map_err(|why| format!("{}: {why}", path.display()))?;
                Self::new(&text).map_err(|why| format!("{}: {why}", path.display()))
            }
            Source::Environment(name) => {
                let text = env::var(name).map_err(|why| format!("{name}: {why}"))?;
                Self::new(text.as_bytes()).map_err(|why| format!("{name}: {why}"))
            }
        }
    }

    /// Spaces and newlines around it do not count.
    pub fn new(text: &[u8]) -> Result<Self, String> {
        let text = text.trim_ascii();
        if text.len() < 16 {
            return Err("the token is shorter than 16 characters".to_owned());
        }
        if text.len() > 1024 || !text.iter().all(u8::is_ascii_graphic) {
            return Err("the token is no word of ASCII".to_owned());
        }
        Ok(Self(text.into()))
    }

    /// Whether a header's value holds it. Takes as long for a wrong one as for the right one.
    pub(super) fn allows(&self, authorization: Option<&[u8]>) -> bool {
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
    use super::{Source, Token};

    #[test]
    fn only_the_whole_token_opens() {
        let token = Token::new(b"0123456789abcdef\n").unwrap();
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
    fn sources_are_files_and_variables() {
        assert_eq!("env:TOKEN".parse(), Ok(Source::Environment("TOKEN".into())));
        assert_eq!("file:/a/b".parse(), Ok(Source::File("/a/b".into())));
        for bad in ["", "secret", "env:", "file:", "env:a=b"] {
            assert!(bad.parse::<Source>().is_err(), "{bad}");
        }
        assert!(Token::new(b"short").is_err());
        let missing = Token::read(&Source::File("/nowhere/token".into())).unwrap_err();
        assert!(missing.starts_with("/nowhere/token: "), "{missing}");
    }
}
