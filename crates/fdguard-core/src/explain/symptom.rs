//! Symptoms: what a log line may mean.

use serde::{Deserialize, Serialize};

use super::LinePattern;
use crate::rule::{Rule, RuleKind, Severity};

/// A form in which a full table, or another limit, appears in logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Symptom {
    /// Its name, in kebab-case.
    pub id: String,
    /// A line that matches one of these is this symptom,
    pub patterns: Vec<LinePattern>,
    /// unless it matches one of these.
    pub unless: Vec<LinePattern>,
    /// The limit that was reached.
    pub wall: WallName,
    /// How far the line alone can be trusted.
    pub certainty: Certainty,
    /// Fewer lines than this count for nothing.
    pub at_least: u64,
    /// What it means.
    pub meaning: String,
    /// What to do next.
    pub next: String,
}

impl Symptom {
    /// Its description beside the other rules.
    pub(crate) fn rule(&'static self) -> Rule {
        Rule {
            id: &self.id,
            severity: self.severity(),
            summary: &self.meaning,
            cwe: None,
            requirement: "R17",
            fix: Some(&self.next),
            kind: RuleKind::Symptom,
        }
    }

    /// A line that is certain about a limit of the kernel means trouble now.
    fn severity(&self) -> Severity {
        match self.certainty {
            _ if self.wall == WallName::None => Severity::Info,
            Certainty::Possible => Severity::Info,
            Certainty::Likely => Severity::Warning,
            Certainty::Certain => Severity::Critical,
        }
    }
}

/// A limit by its name; `none` is for lines that only look like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WallName {
    /// The process's limit of open files (`EMFILE`).
    SoftLimit,
    /// The host's limit of open files (`ENFILE`).
    SystemFiles,
    /// Numbers from 1024 on, for `select()`.
    #[serde(rename = "select-1024")]
    Select1024,
    /// inotify instances of the user (`EMFILE`, too).
    InotifyInstances,
    /// inotify watches of the user (`ENOSPC`).
    InotifyWatches,
    /// Pseudo-terminals of the host.
    Ptys,
    /// Processes and threads (`EAGAIN`).
    Tasks,
    /// Not a kernel limit: a limit that the program sets itself, or another kind of mistake.
    None,
}

impl WallName {
    /// The name as in JSON and in [`Wall`](crate::wall::Wall).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SoftLimit => "soft-limit",
            Self::SystemFiles => "system-files",
            Self::Select1024 => "select-1024",
            Self::InotifyInstances => "inotify-instances",
            Self::InotifyWatches => "inotify-watches",
            Self::Ptys => "ptys",
            Self::Tasks => "tasks",
            Self::None => "none",
        }
    }

    /// Whether it limits descriptors, by count or by number.
    #[must_use]
    pub fn is_of_descriptors(self) -> bool {
        matches!(self, Self::SoftLimit | Self::SystemFiles | Self::Select1024)
    }

    /// Whether a line about the other limit makes a doubtful line about this one credible. A failed
    /// `open` does not show whether the process or the host ran out.
    pub(super) fn is_vouched_for_by(self, other: Self) -> bool {
        let full = |wall| matches!(wall, Self::SoftLimit | Self::SystemFiles);
        self == other || (full(self) && full(other))
    }
}

/// How far a line alone can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// It usually has another cause: it counts only near a surer line.
    Possible,
    /// It seldom has another cause.
    Likely,
    /// It is explicit.
    Certain,
}

impl Certainty {
    /// The name as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }
}
