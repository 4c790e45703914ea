//! A finding about a file.

use fdguard_core::lint::Severity;
use serde::Serialize;

/// A finding and its position in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileFinding {
    /// A fixed word.
    pub rule: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// First byte, if it has a position in the file.
    pub offset: Option<u64>,
    /// How many bytes, if known.
    pub length: Option<u64>,
    /// What it is, in words.
    pub message: String,
    /// Processes that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// Distinguishes it from another finding of the same rule without a position.
    #[serde(skip)]
    pub(crate) mark: (u64, u64),
}

impl FileFinding {
    /// Informational.
    pub fn info(rule: &'static str, offset: Option<u64>, message: impl Into<String>) -> Self {
        Self::new(rule, Severity::Info, offset, message.into())
    }

    /// Something that may be damage, or become it.
    pub fn warning(rule: &'static str, offset: Option<u64>, message: impl Into<String>) -> Self {
        Self::new(rule, Severity::Warning, offset, message.into())
    }

    /// Damage, or data loss happening now.
    pub fn critical(rule: &'static str, offset: Option<u64>, message: impl Into<String>) -> Self {
        Self::new(rule, Severity::Critical, offset, message.into())
    }

    fn new(rule: &'static str, severity: Severity, offset: Option<u64>, message: String) -> Self {
        Self {
            rule,
            severity,
            offset,
            length: None,
            message,
            pids: Vec::new(),
            mark: (0, 0),
        }
    }

    /// With its length.
    #[must_use]
    pub fn long(self, length: Option<u64>) -> Self {
        Self { length, ..self }
    }

    /// Sets the distinguishing mark.
    #[must_use]
    pub(crate) fn marked(self, mark: (u64, u64)) -> Self {
        Self { mark, ..self }
    }

    /// With the processes that it is about.
    #[must_use]
    pub fn about(self, pids: Vec<u32>) -> Self {
        Self { pids, ..self }
    }
}
