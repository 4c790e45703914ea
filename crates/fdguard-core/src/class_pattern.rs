//! A class, or all classes whose names begin alike.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::Class;
use crate::class::NAMES;

/// What kind of descriptor is meant: `eventpoll`, or with a star at the end `sqlite-*`, `tcp:*`,
/// `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassPattern(Box<str>);

impl ClassPattern {
    /// Whether this class is meant.
    #[must_use]
    pub fn matches(&self, class: &Class) -> bool {
        self.exactness(&class.to_string()).is_some()
    }

    /// How precisely it names the class of this name: `None` if it does not match, more for more of
    /// the name.
    #[must_use]
    pub fn exactness(&self, class: &str) -> Option<usize> {
        match self.0.strip_suffix('*') {
            Some(start) => class.starts_with(start).then_some(start.len()),
            None => (*self.0 == *class).then_some(usize::MAX),
        }
    }

    /// The text as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClassPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for ClassPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// A pattern that no class can match: most likely a typo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadClassPattern(pub String);

impl fmt::Display for BadClassPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown descriptor class {:?}", self.0)?;
        let longer = format!("{}*", self.0);
        if longer.parse::<ClassPattern>().is_ok() {
            write!(f, " (did you mean {longer:?}?)")?;
        }
        Ok(())
    }
}

impl std::error::Error for BadClassPattern {}

impl FromStr for ClassPattern {
    type Err = BadClassPattern;

    fn from_str(text: &str) -> Result<Self, BadClassPattern> {
        let known = match text.strip_suffix('*') {
            Some(start) => {
                // Names behind `other:` come from the kernel and are not known in advance.
                let other = start.starts_with("other:") || "other:".starts_with(start);
                let ours = NAMES.iter().any(|(_, name)| name.starts_with(start));
                !start.contains('*') && (ours || other)
            }
            None => text.parse::<Class>().is_ok(),
        };
        if known {
            Ok(Self(text.into()))
        } else {
            Err(BadClassPattern(text.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ClassPattern;
    use crate::{Class, TcpState};

    fn pattern(text: &str) -> ClassPattern {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_means_one_class_and_a_star_all_that_begin_so() {
        assert!(pattern("eventpoll").matches(&Class::Eventpoll));
        assert!(!pattern("eventpoll").matches(&Class::Eventfd));
        assert!(pattern("sqlite-*").matches(&Class::SqliteWal));
        assert!(pattern("tcp:*").matches(&Class::Tcp(TcpState::CloseWait)));
        assert!(pattern("*").matches(&Class::Other("[x]".into())));
        assert!(pattern("other:[land*").matches(&Class::Other("[landlock]".into())));
        assert_eq!(pattern("tcp:*").to_string(), "tcp:*");
    }

    #[test]
    fn more_of_a_name_is_more_exact() {
        let exactness = |text: &str, class| pattern(text).exactness(class);
        assert_eq!(exactness("pipe", "pipe"), Some(usize::MAX));
        assert_eq!(exactness("tcp:*", "tcp:LISTEN"), Some(4));
        assert_eq!(exactness("*", "tcp:LISTEN"), Some(0));
        assert_eq!(exactness("other:*", "other:[landlock]"), Some(6));
        assert_eq!(exactness("other:net", "other:net"), Some(usize::MAX));
        assert_eq!(exactness("sqlite-*", "regular"), None);
    }

    #[test]
    fn what_no_descriptor_can_be_is_refused_with_a_hint() {
        let error = "tcp".parse::<ClassPattern>().unwrap_err();
        let said = "unknown descriptor class \"tcp\" (did you mean \"tcp*\"?)";
        assert_eq!(error.to_string(), said);
        for bad in [
            "",
            "sockets",
            "tcp:close_wait",
            "*pipe",
            "t*p*",
            "sql*ite",
            "zzz*",
        ] {
            assert!(bad.parse::<ClassPattern>().is_err(), "{bad}");
        }
    }
}
