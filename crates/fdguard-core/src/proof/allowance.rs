//! `--allow`: what may stay open, said by the user for this one check.

use std::fmt;
use std::str::FromStr;

use crate::class_pattern::{BadClassPattern, ClassPattern};
use crate::glob::Glob;
use crate::origin::Origin;
use crate::{Class, Text};

/// What may stay: a class, a path, or all that a line opened.
///
/// ```
/// use fdguard_core::proof::Allowance;
///
/// assert!(matches!("sqlite-*".parse(), Ok(Allowance::Class(_))));
/// assert!(matches!("tcp:LISTEN".parse(), Ok(Allowance::Class(_))));
/// assert!(matches!("/var/log/*.log".parse(), Ok(Allowance::Target(_))));
/// assert!(matches!("cache.py:31".parse(), Ok(Allowance::Line { .. })));
/// assert!("no-such-class".parse::<Allowance>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Of this class.
    Class(ClassPattern),
    /// On this target.
    Target(Glob),
    /// Opened by this line, of any function in its stack.
    Line {
        /// The end of the file's path.
        file: String,
        /// The line.
        line: u32,
    },
}

/// A text that is none of the three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAllowance(BadClassPattern);

impl fmt::Display for BadAllowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "neither a class, nor a path (with a / or a *), nor FILE:LINE: {}",
            self.0
        )
    }
}

impl std::error::Error for BadAllowance {}

impl FromStr for Allowance {
    type Err = BadAllowance;

    fn from_str(text: &str) -> Result<Self, BadAllowance> {
        if let Some((file, line)) = text.rsplit_once(':')
            && !file.is_empty()
            && let Ok(line) = line.parse()
        {
            let file = file.to_owned();
            return Ok(Self::Line { file, line });
        }
        match text.parse() {
            Ok(class) => Ok(Self::Class(class)),
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
            Self::Line { file, line } => write!(f, "{file}:{line}"),
        }
    }
}

impl Allowance {
    /// Whether it speaks of this. What nobody saw is not allowed by its class or its path.
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
            Self::Line { file, line } => origin.is_some_and(|origin| {
                let mut frames = origin.stack.iter();
                frames.any(|frame| {
                    let is_file = |name: &Text| ends_with_path(&name.to_lossy(), file);
                    frame.line == Some(*line) && frame.file.as_ref().is_some_and(is_file)
                })
            }),
        }
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
        assert!(error.contains("no descriptor class is \"pip\""), "{error}");
    }
}
