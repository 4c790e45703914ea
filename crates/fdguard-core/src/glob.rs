//! Names with `*` in them: `/srv/*/state.db` matches any text in that place, slashes included.

use std::fmt;

use bstr::ByteSlice as _;
use serde::{Serialize, Serializer};

/// A pattern over bytes in which `*` matches any run of bytes, including none; every other byte
/// matches itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob(Box<str>);

impl Glob {
    /// Whether the pattern matches all of these bytes. Takes time in proportion to both: each piece
    /// between two stars is searched for once, from the end of the previous match.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let Some((head, rest)) = self.0.split_once('*') else {
            return self.0.as_bytes() == name;
        };
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        let inner = name
            .strip_prefix(head.as_bytes())
            .and_then(|name| name.strip_suffix(tail.as_bytes()));
        let Some(mut inner) = inner else {
            return false;
        };
        // The leftmost match leaves the most for what follows, so no other needs to be tried.
        for piece in middle.split('*') {
            let Some(at) = inner.find(piece) else {
                return false;
            };
            inner = &inner[at + piece.len()..];
        }
        true
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Glob {
    fn from(pattern: &str) -> Self {
        Self(pattern.into())
    }
}

impl From<String> for Glob {
    fn from(pattern: String) -> Self {
        Self(pattern.into())
    }
}

impl Serialize for Glob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Glob;

    /// Tries every length for every star: obviously correct, and slow.
    fn naive(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|skip| naive(rest, &name[skip..])),
            Some((byte, rest)) => name
                .split_first()
                .is_some_and(|(first, name)| first == byte && naive(rest, name)),
        }
    }

    #[test]
    fn a_star_stands_for_anything_and_for_nothing() {
        let matches = |pattern: &str, name: &str| Glob::from(pattern).matches(name.as_bytes());
        assert!(matches("/srv/*/state.db", "/srv/a/b/state.db"));
        assert!(matches("/srv/*", "/srv/"));
        assert!(matches("*", ""));
        assert!(matches("a**b", "ab"));
        assert!(!matches("/srv/*/state.db", "/srv/state.db"));
        assert!(!matches("a*a", "a"));
        assert!(!matches("", "x"));
        assert!(!matches("state.db", "/srv/state.db"));
    }

    #[test]
    fn bytes_that_are_not_text_are_matched_too() {
        assert!(Glob::from("/tmp/*.log").matches(b"/tmp/\xff\xfe.log"));
    }

    #[test]
    fn many_stars_on_a_long_name_take_no_time() {
        let pattern = format!("{}b", "a*".repeat(2_000));
        let name = vec![b'a'; 200_000];
        assert!(!Glob::from(pattern.as_str()).matches(&name));
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_naive_matcher(pattern in "[ab*]{0,8}", name in "[ab]{0,10}") {
            let found = Glob::from(pattern.as_str()).matches(name.as_bytes());
            prop_assert_eq!(found, naive(pattern.as_bytes(), name.as_bytes()));
        }

        #[test]
        fn any_pattern_and_bytes_are_survived(pattern: String, name: Vec<u8>) {
            let _ = Glob::from(pattern.as_str()).matches(&name);
        }
    }
}
