//! One entry, and the types of queries and changes.

use fdguard_core::Text;
use fdguard_proc::ProcessId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::state::{Owner, RowState, RowStatus};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A tool session.
    Session,
    /// All resources that one agent holds.
    Scope,
    /// A call of an API.
    Call,
    /// A host itself.
    Host,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Session, Self::Scope, Self::Call, Self::Host];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Scope => "scope",
            Self::Call => "call",
            Self::Host => "host",
        }
    }

    /// From its word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// A new entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRow {
    /// Its unique name.
    pub id: String,
    /// Its kind.
    pub kind: Kind,
    /// The client that it belongs to.
    pub client: Option<String>,
    /// Its process, if it has one.
    pub process: Option<ProcessId>,
    /// The host process that manages it; absent if there is none.
    pub host: Option<ProcessId>,
    /// The keeper of its processes. It ends them when the host is gone, unless it has been stopped.
    pub keeper: Option<ProcessId>,
    /// The files that belong to it.
    pub files: Vec<Text>,
    /// Start time.
    pub started_at: Timestamp,
}

impl NewRow {
    /// An entry that starts now, without further data.
    #[must_use]
    pub fn now(id: impl Into<String>, kind: Kind) -> Self {
        Self {
            id: id.into(),
            kind,
            client: None,
            process: None,
            host: None,
            keeper: None,
            files: Vec::new(),
            started_at: Timestamp::now(),
        }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegistryRow {
    /// Its name.
    pub id: String,
    /// Its kind.
    pub kind: Kind,
    /// The client that it belongs to.
    pub client: Option<String>,
    /// State of the entry.
    pub state: RowState,
    /// The process that closes or closed it.
    pub owner: Option<Owner>,
    /// Why it ended, as a code.
    pub reason: Option<String>,
    /// Counts its changes, from 1.
    pub version: u64,
    /// Its process.
    pub process: Option<ProcessId>,
    /// The host process that manages it.
    pub host: Option<ProcessId>,
    /// The keeper of its processes.
    pub keeper: Option<ProcessId>,
    /// Start time.
    pub started_at: Timestamp,
    /// End time.
    pub ended_at: Option<Timestamp>,
    /// The files that belong to it.
    pub files: Vec<Text>,
    /// The receipt of its close.
    pub receipt: Option<serde_json::Value>,
}

impl RegistryRow {
    /// The input of the state machine.
    #[must_use]
    pub fn standing(&self) -> RowStatus {
        RowStatus {
            state: self.state,
            owner: self.owner.clone(),
            version: self.version,
        }
    }
}

/// Changes to a running entry; `None` leaves a field unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowChange {
    /// The client that it belongs to.
    pub client: Option<String>,
    /// Its process.
    pub process: Option<ProcessId>,
    /// The host process that manages it.
    pub host: Option<ProcessId>,
    /// The keeper of its processes.
    pub keeper: Option<ProcessId>,
    /// The files that belong to it.
    pub files: Option<Vec<Text>>,
}

/// Filter for entries; an empty field matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFilter {
    /// Of this kind.
    pub kind: Option<Kind>,
    /// Of this client.
    pub client: Option<String>,
    /// In one of these states.
    pub states: Vec<RowState>,
}

impl RowFilter {
    /// All entries that have not ended.
    #[must_use]
    pub fn open() -> Self {
        Self {
            states: vec![RowState::Running, RowState::Closing],
            ..Self::default()
        }
    }
}

/// The right to close an entry: only one process has it at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which entry.
    pub id: String,
    /// Its version since then.
    pub version: u64,
    /// The process that closes it.
    pub owner: Owner,
    /// The previous closer, which is gone.
    pub took_over_from: Option<Owner>,
}

/// How many there are of a kind in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowCount {
    /// Of this kind.
    pub kind: Kind,
    /// In this state.
    pub state: RowState,
    /// How many.
    pub count: u64,
}
