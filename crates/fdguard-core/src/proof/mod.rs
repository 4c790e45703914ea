//! The judgement of a check: what a program left behind, and whether that can be intended.
//!
//! Values in, verdict out. [`at_exit`] judges what was open when a process exited by the course of
//! its call path, [`cycles`] what the cycles of an exercise left in a running server, [`process`]
//! the processes that outlived the program. [`Allowance`] is what the user cleared on the command
//! line. See decision 023.

pub mod allowance;
pub mod at_exit;
pub mod clearance;
pub mod cycles;
pub mod process;
pub mod scenario;
mod wording;

#[cfg(test)]
mod testing;

pub use allowance::{Allowance, BadAllowance, BadCodeLine, CodeLine};
pub use clearance::Clearance;

use serde::Serialize;

use crate::origin::Origin;
use crate::rule::{Rule, RuleKind};
use crate::{Class, Fd, Pid, Text};

/// Every proof rule. A check of `fdguard check` applies them one by one.
pub(crate) const PROOFS: &[Rule] = &[
    at_exit::RULE,
    cycles::RULE,
    process::RULE,
    crate::children::finding::RULE,
];

/// The judgement of descriptors that are left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemainsVerdict {
    /// Their number kept growing while the program ran.
    Grew,
    /// Each cycle of the exercise leaves some.
    PerCycle,
    /// Nothing of this line was closed before the program ended.
    Left,
    /// Other descriptors of this line were closed, these were not.
    Strayed,
    /// The user accepts them.
    Allowed,
    /// Their number did not grow for a long time before the exit.
    Held,
    /// The line closes what it opened, the oldest first: a cache, a rotated file.
    Rolling,
    /// A thread was just using it.
    InFlight,
    /// A signal terminated the program: it had no time to close.
    CutOff,
    /// None of the program's own lines took part.
    Runtime,
}

impl RemainsVerdict {
    /// Whether it fails the check, because it cannot be intended.
    #[must_use]
    pub fn fails(self) -> bool {
        self <= Self::Strayed
    }
}

/// Descriptors of one class that one site left open, and their judgement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remains {
    /// The process.
    pub pid: Pid,
    /// Its command.
    pub comm: Text,
    /// Their class; absent where unknown.
    pub class: Option<Class>,
    /// Their target; absent where it differs or is unknown.
    pub target: Option<Text>,
    /// The call that opened them.
    pub call: String,
    /// How many.
    pub count: u64,
    /// Their numbers.
    pub fds: Vec<Fd>,
    /// Their judgement.
    pub judged: RemainsVerdict,
    /// Why, in words.
    pub why: String,
    /// The line that opened them.
    pub origin: Option<Origin>,
    /// The exercise of a scenario that left them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exercise: Option<String>,
    /// How many each cycle leaves, where there were cycles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_cycle: Option<cycles::Rate>,
    /// The allowance that clears them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_by: Option<String>,
}

pub use wording::{next_step, place, what};
