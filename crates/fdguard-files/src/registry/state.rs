//! State machine of an entry. Pure; the store consults it before every write.
//!
//! `running → closing(owner) → closed | failed`, and `running → failed` for entries that ended by
//! themselves. An entry that has ended never changes.

use serde::{Deserialize, Serialize};

use super::identity::{Liveness, OwnerId};

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// In use.
    Running,
    /// Somebody is closing it.
    Closing,
    /// It was closed, as it should be.
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

    /// By its word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Nothing comes after it.
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
    /// Its process. When that is gone another may close.
    pub process: OwnerId,
}

/// What the rules need to know of an entry.
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
    /// As it should.
    Closed,
    /// In another way.
    Failed,
}

/// A requested state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowTransition {
    /// Changes what is known of it.
    Update {
        /// The version that was seen.
        version: u64,
    },
    /// Begins to close it.
    BeginClosing {
        /// The closer.
        owner: Owner,
        /// Whether the one that closes it already lives.
        present: Liveness,
    },
    /// Closes it in the place of an owner that lives but does not go on. The caller knows that.
    TakeOver {
        /// The version that was seen.
        version: u64,
        /// The closer.
        owner: Owner,
    },
    /// Ends a close.
    Finish {
        /// The version of the claim.
        version: u64,
        /// How.
        end: RowEnd,
    },
    /// Notes that it is gone without a close.
    Lose {
        /// The version that was seen.
        version: u64,
    },
}

/// Why a step may not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransitionRefusal {
    /// It has ended.
    Ended(RowState),
    /// Somebody changed it since.
    Stale,
    /// Somebody else is closing it.
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

    /// After a step, or why it may not be.
    pub fn after(&self, step: &RowTransition) -> Result<Self, TransitionRefusal> {
        // An ended entry is checked first: no version helps.
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
