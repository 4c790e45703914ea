//! State machine of an entry. Pure; the store consults it before every write.
//!
//! `running → closing(owner) → closed | failed`, and `running → failed` for entries that ended by
//! themselves. An entry that has ended never changes.

use serde::{Deserialize, Serialize};

use fdguard_proc::ProcessId;
use fdguard_proc::process::Liveness;

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// In use.
    Running,
    /// A process is closing it.
    Closing,
    /// It was closed properly.
    Closed,
    /// It ended in another way.
    Failed,
}

impl RowState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Running, Self::Closing, Self::Closed, Self::Failed];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Closing => "closing",
            Self::Closed => "closed",
            Self::Failed => "failed",
        }
    }

    /// From its word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether no state follows it.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Closed | Self::Failed)
    }
}

/// The process that closes an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// In words: `host`, `reaper`, `cleanup-daemon`.
    pub name: String,
    /// Its process. Once that is gone, another may close.
    pub process: ProcessId,
}

/// The input of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowStatus {
    /// State of the entry.
    pub state: RowState,
    /// The process that closes it, while it is closing.
    pub owner: Option<Owner>,
    /// Counts its changes, from 1.
    pub version: u64,
}

/// How a close ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowEnd {
    /// Properly.
    Closed,
    /// In another way.
    Failed,
}

/// A requested state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowTransition {
    /// Changes its data.
    Update {
        /// The version that the caller saw.
        version: u64,
    },
    /// Begins to close it.
    BeginClosing {
        /// The closer.
        owner: Owner,
        /// Whether the current closer is alive.
        present: Liveness,
    },
    /// Closes it in place of an owner that is alive but stuck. The caller knows that.
    TakeOver {
        /// The version that the caller saw.
        version: u64,
        /// The closer.
        owner: Owner,
    },
    /// Ends a close.
    Finish {
        /// The version of the claim.
        version: u64,
        /// The outcome.
        end: RowEnd,
    },
    /// Records that it is gone without a close.
    Lose {
        /// The version that the caller saw.
        version: u64,
    },
}

/// Why a transition was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransitionRefusal {
    /// It has ended.
    Ended(RowState),
    /// It was changed since.
    Stale,
    /// Another process is closing it.
    AlreadyClosing(Owner),
    /// It is not being closed.
    NotClosing,
}

impl RowStatus {
    /// A new entry.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: RowState::Running,
            owner: None,
            version: 1,
        }
    }

    /// The status after a transition, or why it was refused.
    pub fn after(&self, step: &RowTransition) -> Result<Self, TransitionRefusal> {
        // Whether it ended is checked first: no version helps then.
        if self.state.is_final() {
            return Err(TransitionRefusal::Ended(self.state));
        }
        let next = |state, owner| {
            Ok(Self {
                state,
                owner,
                version: self.version + 1,
            })
        };
        match step {
            RowTransition::Update { version } => {
                self.is_seen(*version)?;
                self.is_unclaimed()?;
                next(RowState::Running, None)
            }
            RowTransition::BeginClosing { owner, present } => {
                if *present != Liveness::Gone {
                    self.is_unclaimed()?;
                }
                next(RowState::Closing, Some(owner.clone()))
            }
            RowTransition::TakeOver { version, owner } => {
                self.is_seen(*version)?;
                self.is_closing()?;
                next(RowState::Closing, Some(owner.clone()))
            }
            RowTransition::Finish { version, end } => {
                self.is_seen(*version)?;
                self.is_closing()?;
                let state = match end {
                    RowEnd::Closed => RowState::Closed,
                    RowEnd::Failed => RowState::Failed,
                };
                next(state, self.owner.clone())
            }
            RowTransition::Lose { version } => {
                self.is_seen(*version)?;
                next(RowState::Failed, self.owner.clone())
            }
        }
    }

    fn is_seen(&self, version: u64) -> Result<(), TransitionRefusal> {
        (version == self.version)
            .then_some(())
            .ok_or(TransitionRefusal::Stale)
    }

    fn is_unclaimed(&self) -> Result<(), TransitionRefusal> {
        match &self.owner {
            Some(owner) => Err(TransitionRefusal::AlreadyClosing(owner.clone())),
            None => Ok(()),
        }
    }

    fn is_closing(&self) -> Result<(), TransitionRefusal> {
        (self.state == RowState::Closing)
            .then_some(())
            .ok_or(TransitionRefusal::NotClosing)
    }
}

impl Default for RowStatus {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
