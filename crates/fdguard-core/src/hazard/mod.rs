//! Hazards: misuse of descriptors that events prove; each kind has its own file.
//!
//! To add one: a file beside this one with a `RULE` constant and a `check` function, one line in
//! `HAZARDS`, one page under `docs/guide/rules/`. A check sees the `EventContext` just before the
//! event changes the ledger. It must report nothing without evidence: passing a descriptor from
//! thread to thread is normal.

mod close_retry;
mod context;
mod detector;
mod double_close;
mod exhaustion;
mod incident;
mod lock_drop;
mod memory;
mod never_open;
mod overlap;
mod recycled_write;
mod repetition;
mod second_close;
mod select_past_1024;
mod stale;
mod stranger_close;
mod sweep;
mod tls;
mod use_after_close;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::blame::is_programs;
use crate::event::Tid;
use crate::finding::ClearedNote;
use crate::lint::Severity;
use crate::origin::{Culprit, Origin, Stack};
use crate::rule::{self, Rule, RuleKind, RuleTable};
use crate::{Class, Fd, Pid};
use context::EventContext;
pub use detector::HazardDetector;
use incident::Incident;

/// Detects it when it happens.
type Check = fn(&EventContext<'_>) -> Vec<Incident>;

/// Every hazard rule.
const HAZARDS: RuleTable<Check> = &[
    (close_retry::RULE, close_retry::check),
    (double_close::RULE, double_close::check),
    (exhaustion::RULE, exhaustion::check),
    (lock_drop::RULE, lock_drop::check),
    (never_open::RULE, never_open::check),
    (recycled_write::RULE, recycled_write::check),
    (select_past_1024::RULE, select_past_1024::check),
    (stranger_close::RULE, stranger_close::check),
    (use_after_close::RULE, use_after_close::check),
];

/// The descriptions of the hazard rules.
pub(crate) fn rules() -> Vec<&'static Rule> {
    rule::descriptions(HAZARDS)
}

/// A hazard, as shown in the public JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hazard {
    /// The process.
    pub pid: Pid,
    /// The id of its kind.
    pub rule: String,
    /// How much it matters.
    pub severity: Severity,
    /// The number; absent where it is about the whole table.
    pub fd: Option<Fd>,
    /// The class of the descriptor that was meant, which the opener opened.
    pub class: Option<Class>,
    /// When it happened first.
    pub when: Timestamp,
    /// How often, with the same stacks.
    pub count: u64,
    /// Whether protection prevented the harm.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prevented: bool,
    /// The code that opened what was closed.
    pub opener: Option<Party>,
    /// The code that closed it; of two closes the one at fault.
    pub closer: Option<Party>,
    /// The code that used it; of two closes the other one.
    pub user: Option<Party>,
    /// The code that opened what was hit instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<Party>,
    /// Which party must be changed, if that is clear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// The sites that hold the table, the largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Origin>,
    /// What happened, in words.
    pub message: String,
    /// Set when the user accepted it: it is shown but does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared: Option<ClearedNote>,
}

impl Hazard {
    /// Whether it makes a trace or a check fail: it can do harm, and the user did not accept it.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.severity >= Severity::Warning && self.cleared.is_none()
    }

    /// Both closes of a double close are at fault. If only one of them was made by the program's
    /// own code, that one is the closer: the other is a library that closes what it was given.
    #[must_use]
    fn with_program_first(mut self) -> Self {
        let is_own = |party: &Option<Party>| party.as_ref().map(|party| is_programs(&party.stack));
        let parties = (is_own(&self.closer), is_own(&self.user));
        if self.rule == double_close::RULE.id && parties == (Some(false), Some(true)) {
            std::mem::swap(&mut self.closer, &mut self.user);
        }
        self
    }

    /// Whether it is a harmless failed close or use by installed programs and libraries alone
    /// (Java's helper for starting processes does it each time), which the user cannot fix.
    #[must_use]
    pub fn is_of_others(&self) -> bool {
        let parties = [&self.opener, &self.closer, &self.user];
        let stacks = parties.into_iter().flatten().map(|party| &party.stack);
        let mut known = stacks.filter(|stack| !stack.is_empty()).peekable();
        let is_harmless = [double_close::RULE.id, never_open::RULE.id];
        is_harmless.contains(&self.rule.as_str())
            && self.victim.is_none()
            && known.peek().is_some()
            && known.all(|stack| !is_programs(stack))
    }
}

/// Code that took part in a hazard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Party {
    /// The thread.
    pub thread: Option<Tid>,
    /// The line of the application.
    pub culprit: Option<Culprit>,
    /// The whole stack, innermost frame first.
    pub stack: Stack,
}

/// Which party is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The one that closed what others were still using.
    Closer,
    /// The one that continued after a proper close.
    User,
}
