//! A class, or all classes whose names begin alike.

use std::fmt;
use std::str::FromStr;

use crate::Class;
use crate::class::NAMES;

/// What kind of descriptor is meant: `eventpoll`, or with a star at the end `sqlite-*`, `tcp:*`, `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassPattern(Pattern);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Is(Class),
    Begins(Box<str>),
}

impl ClassPattern {
    /// Whether this class is meant.
    #[must_use]
    pub fn matches(&self, class: &Class) -> bool {
        match &self.0 {
            Pattern::Is(one) => one == class,
            Pattern::Begins(start) => class.to_string().starts_with(&**start),
        }
    }
}

impl fmt::Display for ClassPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Pattern::Is(class) => class.fmt(f),
            Pattern::Begins(start) => write!(f, "{start}*"),
        }
    }
}

/// A pattern that no descriptor can ever have: most likely a slip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadClassPattern(pub String);

impl fmt::Display for BadClassPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no descriptor class is {:?}", self.0)?;
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
        let bad = || BadClassPattern(text.to_owned());
        let Some(start) = text.strip_suffix('*') else {
            let class = text.parse().map(Pattern::Is);
            return class.map(Self).map_err(|_unknown| bad());
        };
        // Names behind `other:` are the kernel's and not known in advance; a star there is none of ours.
        let known = NAMES.iter().any(|(_, name)| name.starts_with(start));
        let other = start.starts_with("other:") || "other:".starts_with(start);
        if start.contains('*') || !(known || other) {
            return Err(bad());
        }
        Ok(Self(Pattern::Begins(start.into())))
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
    fn what_no_descriptor_can_be_is_refused_with_a_hint() {
        let error = "tcp".parse::<ClassPattern>().unwrap_err();
        let said = "no descriptor class is \"tcp\" (did you mean \"tcp*\"?)";
        assert_eq!(error.to_string(), said);
        for bad in ["", "sockets", "sql*ite", "zzz*"] {
            assert!(bad.parse::<ClassPattern>().is_err(), "{bad}");
        }
    }
}
