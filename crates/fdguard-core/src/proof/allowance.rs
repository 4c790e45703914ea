//! `--allow`: what the user allows to stay open for this one check.

use std::fmt;
use std::str::FromStr;

use crate::class_pattern::{BadClassPattern, ClassPattern};
use crate::glob::Glob;
use crate::origin::{Frame, Origin};
use crate::{Class, Text, rule};

/// What may stay open: a class, a path, everything a line did, or everything a rule finds.
///
/// ```
/// use fdguard_core::proof::Allowance;
///
/// assert!(matches!("sqlite-*".parse(), Ok(Allowance::Class(_))));
/// assert!(matches!("tcp:LISTEN".parse(), Ok(Allowance::Class(_))));
/// assert!(matches!("/var/log/*.log".parse(), Ok(Allowance::Target(_))));
/// assert!(matches!("cache.py:31".parse(), Ok(Allowance::Line(_))));
/// assert!(matches!("lock-drop".parse(), Ok(Allowance::Rule(_))));
/// assert!("no-such-class".parse::<Allowance>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Of this class.
    Class(ClassPattern),
    /// On this target.
    Target(Glob),
    /// Opened by this line, in any frame of its stack; for a hazard, done by it.
    Line(CodeLine),
    /// Found by this rule.
    Rule(String),
}

/// A line of code: the end of its file's path, and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLine {
    file: String,
    line: u32,
}

/// A text that is not `FILE:LINE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCodeLine;

impl fmt::Display for BadCodeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be FILE:LINE, such as cache.py:31")
    }
}

impl std::error::Error for BadCodeLine {}

impl FromStr for CodeLine {
    type Err = BadCodeLine;

    fn from_str(text: &str) -> Result<Self, BadCodeLine> {
        let (file, line) = text.rsplit_once(':').ok_or(BadCodeLine)?;
        let line = line.parse().ok().ok_or(BadCodeLine)?;
        if file.is_empty() {
            return Err(BadCodeLine);
        }
        let file = file.to_owned();
        Ok(Self { file, line })
    }
}

impl fmt::Display for CodeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl CodeLine {
    /// Whether a frame of this stack is at this line.
    #[must_use]
    pub fn is_in(&self, stack: &[Frame]) -> bool {
        let is_file = |name: &Text| ends_with_path(&name.to_lossy(), &self.file);
        stack
            .iter()
            .any(|frame| frame.line == Some(self.line) && frame.file.as_ref().is_some_and(is_file))
    }
}

/// A text that is none of the four.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAllowance(BadClassPattern);

impl fmt::Display for BadAllowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not a class, a path (with / or *), FILE:LINE or a rule: {}",
            self.0
        )
    }
}

impl std::error::Error for BadAllowance {}

impl FromStr for Allowance {
    type Err = BadAllowance;

    fn from_str(text: &str) -> Result<Self, BadAllowance> {
        if let Ok(line) = text.parse() {
            return Ok(Self::Line(line));
        }
        match text.parse() {
            Ok(class) => Ok(Self::Class(class)),
            Err(_) if rule::is_suppressible(text) => Ok(Self::Rule(text.to_owned())),
            Err(_) if text.contains(['/', '*']) => Ok(Self::Target(Glob::from(text))),
            Err(bad) => Err(BadAllowance(bad)),
        }
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(class) => class.fmt(f),
            Self::Target(target) => f.write_str(target.as_str()),
            Self::Line(line) => line.fmt(f),
            Self::Rule(rule) => f.write_str(rule),
        }
    }
}

impl Allowance {
    /// Whether it covers this. A class or path that is unknown is not covered.
    #[must_use]
    pub fn covers(
        &self,
        class: Option<&Class>,
        target: Option<&Text>,
        origin: Option<&Origin>,
    ) -> bool {
        match self {
            Self::Class(wanted) => class.is_some_and(|class| wanted.matches(class)),
            Self::Target(wanted) => target.is_some_and(|target| wanted.matches(target.as_bytes())),
            Self::Line(line) => origin.is_some_and(|origin| line.is_in(&origin.stack)),
            Self::Rule(_) => false,
        }
    }

    /// Whether it covers all findings of this rule.
    #[must_use]
    pub fn covers_rule(&self, rule: &str) -> bool {
        matches!(self, Self::Rule(wanted) if wanted == rule)
    }
}

/// Whether the last parts of a path are these.
fn ends_with_path(path: &str, end: &str) -> bool {
    let rest = path.strip_suffix(end.trim_start_matches("./"));
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::Allowance;
    use crate::Class;
    use crate::proof::testing::{frame, origin};

    fn parsed(text: &str) -> Allowance {
        text.parse().unwrap()
    }

    #[test]
    fn a_line_is_allowed_by_the_end_of_its_path_wherever_it_stands_in_the_stack() {
        let origin = origin(vec![
            frame("/srv/app/cache.py", "get", 31),
            frame("/srv/app/main.py", "serve", 9),
        ]);
        let covers = |text: &str| parsed(text).covers(None, None, Some(&origin));
        assert!(covers("cache.py:31") && covers("app/main.py:9") && covers("./cache.py:31"));
        assert!(!covers("cache.py:32") && !covers("ache.py:31"));
        assert!(!parsed("cache.py:31").covers(Some(&Class::Regular), None, None));
    }

    #[test]
    fn what_nobody_saw_is_not_allowed_by_class_or_path() {
        let target = "/var/log/a.log".into();
        assert!(parsed("/var/log/*").covers(None, Some(&target), None));
        assert!(!parsed("/var/log/*").covers(None, None, None));
        assert!(parsed("pipe").covers(Some(&Class::Pipe), None, None));
        assert!(!parsed("pipe").covers(None, None, None));
    }

    #[test]
    fn a_slip_is_told() {
        let error = "pip".parse::<Allowance>().unwrap_err().to_string();
        assert!(
            error.contains("unknown descriptor class \"pip\""),
            "{error}"
        );
    }

    #[test]
    fn a_rule_is_allowed_by_its_name_alone() {
        let rule = parsed("lock-drop");
        assert!(rule.covers_rule("lock-drop") && !rule.covers_rule("double-close"));
        assert!(!rule.covers(Some(&Class::Regular), None, None));
        assert_eq!(rule.to_string(), "lock-drop");
        assert!(!parsed("pipe").covers_rule("pipe"));
    }
}
