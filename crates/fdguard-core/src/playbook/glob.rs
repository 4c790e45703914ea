//! Names with `*` in them: of files and commands, and of classes.

use serde::{Serialize, Serializer};

use crate::class::{Class, NAMES};

/// A name in which `*` stands for any run of bytes, slashes among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(String);

impl Glob {
    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the name of this, from end to end.
    #[must_use]
    pub fn matches(&self, bytes: &[u8]) -> bool {
        matches(self.0.as_bytes(), bytes)
    }
}

impl From<String> for Glob {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Serialize for Glob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Walks both at once. Only the last `*` is ever widened: what matched before it stays matched, so
/// the time is at most the product of both lengths.
fn matches(glob: &[u8], bytes: &[u8]) -> bool {
    let (mut in_glob, mut at) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while at < bytes.len() {
        match glob.get(in_glob) {
            Some(b'*') => {
                star = Some((in_glob, at));
                in_glob += 1;
            }
            Some(byte) if *byte == bytes[at] => {
                in_glob += 1;
                at += 1;
            }
            _ => {
                let Some((back, reached)) = star else {
                    return false;
                };
                star = Some((back, reached + 1));
                in_glob = back + 1;
                at = reached + 1;
            }
        }
    }
    glob[in_glob..].iter().all(|byte| *byte == b'*')
}

/// A class by its contract name, a family of them by a trailing `*`, or all of them by `*` alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassGlob(String);

impl ClassGlob {
    /// Reads one. A name that no class can ever have is a mistake, and told as such.
    ///
    /// # Errors
    ///
    /// When it is neither a class of the contract nor the beginning of one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = match text.strip_suffix('*') {
            Some(start) if start.contains('*') => false,
            Some(start) => {
                "other:".starts_with(start)
                    || start.starts_with("other:")
                    || NAMES.iter().any(|(_, name)| name.starts_with(start))
            }
            None => text.parse::<Class>().is_ok(),
        };
        if known {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("no class is named {text:?}"))
        }
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How exactly it names this class: `None` if it does not, more for more of the name.
    #[must_use]
    pub fn exactness(&self, class: &str) -> Option<usize> {
        match self.0.strip_suffix('*') {
            Some(start) => class.starts_with(start).then_some(start.len()),
            None => (self.0 == class).then_some(usize::MAX),
        }
    }
}

impl Serialize for ClassGlob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ClassGlob, Glob};

    fn fits(glob: &str, text: &str) -> bool {
        Glob::from(glob.to_owned()).matches(text.as_bytes())
    }

    #[test]
    fn a_star_stands_for_any_run_and_nothing_else_does() {
        for (glob, text) in [
            ("*.log*", "/var/log/app.log.1"),
            ("/tmp/*/x", "/tmp/a/b/x"),
            ("python*", "python3.12"),
            ("*", ""),
            ("a*b*c", "a-b-b-c"),
            ("**", "x"),
        ] {
            assert!(fits(glob, text), "{glob} is not {text}");
        }
        for (glob, text) in [
            ("*.log", "/var/log/app.log.1"),
            ("python", "python3"),
            ("", "x"),
            ("a?c", "abc"),
            ("Node", "node"),
        ] {
            assert!(!fits(glob, text), "{glob} is {text}");
        }
    }

    #[test]
    fn a_class_is_named_exactly_by_family_or_as_any() {
        let exactness = |glob: &str, class| ClassGlob::parse(glob).unwrap().exactness(class);
        assert_eq!(exactness("pipe", "pipe"), Some(usize::MAX));
        assert_eq!(exactness("tcp:*", "tcp:LISTEN"), Some(4));
        assert_eq!(exactness("*", "tcp:LISTEN"), Some(0));
        assert_eq!(exactness("other:*", "other:[landlock]"), Some(6));
        assert_eq!(exactness("other:net", "other:net"), Some(usize::MAX));
        assert_eq!(exactness("sqlite-*", "regular"), None);
    }

    #[test]
    fn a_class_that_cannot_be_is_a_mistake() {
        for wrong in [
            "pipes",
            "tcp",
            "tcp:close_wait",
            "",
            "foo*",
            "*pipe",
            "t*p*",
        ] {
            assert!(ClassGlob::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_its_own_glob_and_any_bytes_may_come(
            text in "[a-z/.]{0,20}", glob in "[a-c*]{0,12}", bytes: Vec<u8>,
        ) {
            prop_assert!(fits(&text, &text));
            let any = Glob::from(glob.clone() + "*").matches(&bytes);
            prop_assert!(any || !Glob::from(glob).matches(&bytes));
        }
    }
}
