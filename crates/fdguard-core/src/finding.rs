//! A finding about one process, with its evidence and the next step.

use serde::{Deserialize, Serialize};

use crate::judge::Shape;
use crate::lint::Severity;
use crate::origin::Origin;
use crate::{Class, Pid, Text};

/// One thing found by one rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule's id.
    pub rule: String,
    /// The process.
    pub pid: Pid,
    /// Its command.
    pub comm: Text,
    /// How much it matters.
    pub severity: Severity,
    /// The class of descriptors; absent where they could not be listed.
    pub class: Option<Class>,
    /// What they refer to, numbers collapsed; absent where that differs between them.
    pub target: Option<Text>,
    /// How many there are now.
    pub count: Option<u64>,
    /// How many more than before stay open.
    pub grown: Option<i64>,
    /// Its rate; absent where nothing grows.
    pub rate_per_min: Option<f64>,
    /// 0 to 1.
    pub confidence: f64,
    /// The limits ahead, the nearest first.
    pub walls: Vec<WallEta>,
    /// The evidence in words.
    pub why: String,
    /// What to do now.
    pub next_step: String,
    /// The line that opened them: only a tracer knows.
    pub origin: Option<Origin>,
    /// The form of the series, where the finding is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// The entry of the playbook that the next step comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Why it does not count: the user accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared: Option<ClearedNote>,
}

impl Finding {
    /// A finding that is certain; what else is known is added.
    #[must_use]
    pub fn new(rule: &str, pid: Pid, comm: Text, severity: Severity) -> Self {
        Self {
            rule: rule.to_owned(),
            pid,
            comm,
            severity,
            class: None,
            target: None,
            count: None,
            grown: None,
            rate_per_min: None,
            confidence: 1.0,
            walls: Vec::new(),
            why: String::new(),
            next_step: String::new(),
            origin: None,
            shape: None,
            advice: None,
            cleared: None,
        }
    }
}

/// A limit, and when it is reached if nothing changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WallEta {
    /// Its name.
    pub name: String,
    /// Seconds until then.
    pub eta_seconds: f64,
    /// The earliest, by the range of the rate.
    pub soonest_seconds: f64,
    /// The latest; absent where the rate may be zero.
    pub latest_seconds: Option<f64>,
}

/// The user's suppression that covers a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearedNote {
    /// Why it was judged harmless.
    pub reason: String,
    /// When.
    pub date: String,
}
