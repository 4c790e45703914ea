//! The observations of one tick: the input of a timeline, and a line of a recording.

use serde::{Deserialize, Serialize};

use crate::snapshot::{Ceilings, Limits, Process};
use crate::{Class, Fd, FdEntry, Text, collapse};

/// One look at a watched process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Seconds since the watch began, by the monotonic clock.
    pub at: f64,
    /// Number of descriptors; absent where it could not be read.
    pub count: Option<u64>,
    /// What changed in the table since the last listing; absent when it was not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<LookChange>,
    /// Limits of the process, when they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Limits of the host, when they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Ceilings>,
    /// Its children, when they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<ChildCount>,
    /// The process under its new name, after an exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Box<Process>>,
}

/// The difference between two listings. A number that was closed and opened again in between is in
/// both lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookChange {
    /// New descriptors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened: Vec<Sighting>,
    /// Numbers whose descriptor is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<Fd>,
    /// The same descriptors under another class or name: `ESTABLISHED` became `CLOSE_WAIT`, a file
    /// was renamed or deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Sighting>,
}

impl LookChange {
    /// Whether nothing happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.opened.is_empty() && self.closed.is_empty() && self.changed.is_empty()
    }
}

/// A descriptor as the timeline knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// Its number.
    pub fd: Fd,
    /// Its class when it was looked at.
    pub class: Class,
    /// What it refers to.
    pub target: Text,
    /// The same with numbers and temporary names collapsed, where that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Text>,
}

impl Sighting {
    /// The name that the target shares with its siblings.
    #[must_use]
    pub fn group(&self) -> &Text {
        self.group.as_ref().unwrap_or(&self.target)
    }
}

impl From<&FdEntry> for Sighting {
    fn from(entry: &FdEntry) -> Self {
        let collapsed = collapse::target(entry);
        let group = (&*collapsed != entry.target.as_bytes()).then(|| Text::from(&*collapsed));
        Self {
            fd: entry.fd,
            class: entry.class.clone(),
            target: entry.target.clone(),
            group,
        }
    }
}

/// How many children a process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildCount {
    /// Children.
    pub children: u64,
    /// Of those, the ones that ended and were not waited for.
    pub zombies: u64,
}
