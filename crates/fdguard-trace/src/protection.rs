//! Settings of protection, passed to the injected library.

use std::ffi::OsString;
use std::time::Duration;

/// Protection of a program against its own stale descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Protection {
    /// What happens when harm was prevented.
    pub report: ReportPolicy,
    /// Names of files whose numbers must be kept apart from those of sockets, besides databases;
    /// `*` and `?` are wildcards.
    pub shields: Vec<String>,
    /// How many closed numbers are kept; the library decides if absent.
    pub keep: Option<u32>,
    /// How long they are kept at most; unlimited if absent.
    pub age: Option<Duration>,
}

/// What happens when harm was prevented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportPolicy {
    /// One report for each place in the code.
    Once,
    /// A report each time.
    Always,
    /// The program ends by `SIGABRT`.
    Fatal,
}

impl Protection {
    /// Protection with this report policy.
    #[must_use]
    pub fn new(report: ReportPolicy) -> Self {
        Self {
            report,
            shields: Vec::new(),
            keep: None,
            age: None,
        }
    }

    /// The same, and also shields these files.
    #[must_use]
    pub fn shielding(self, shields: Vec<String>) -> Self {
        Self { shields, ..self }
    }

    /// The variables that the library reads, with the names in `fdguard-preload`'s `protect`.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let level = match self.report {
            ReportPolicy::Once => "warn-once",
            ReportPolicy::Always => "warn-always",
            ReportPolicy::Fatal => "fatal",
        };
        let mut variables = vec![("FDGUARD_PROTECT", OsString::from(level))];
        if !self.shields.is_empty() {
            variables.push(("FDGUARD_SHIELD", self.shields.join(":").into()));
        }
        if let Some(keep) = self.keep {
            variables.push(("FDGUARD_PROTECT_KEEP", keep.to_string().into()));
        }
        if let Some(age) = self.age {
            let age = age.as_millis().to_string();
            variables.push(("FDGUARD_PROTECT_AGE", age.into()));
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::{Protection, ReportPolicy};

    #[test]
    fn the_library_is_told_what_was_asked_for_and_no_more() {
        let plain = Protection::new(ReportPolicy::Once).variables();
        assert_eq!(plain, [("FDGUARD_PROTECT", "warn-once".into())]);
        let shields = vec!["*.ledger".to_owned(), "/srv/*".to_owned()];
        let more = Protection {
            keep: Some(8),
            ..Protection::new(ReportPolicy::Fatal).shielding(shields)
        };
        let expected = [
            ("FDGUARD_PROTECT", "fatal".into()),
            ("FDGUARD_SHIELD", "*.ledger:/srv/*".into()),
            ("FDGUARD_PROTECT_KEEP", "8".into()),
        ];
        assert_eq!(more.variables(), expected);
    }
}
