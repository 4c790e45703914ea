//! A recorded watch: the lines of a `fdguard.recording/1` file, one JSON value each.
//!
//! A live watch creates these entries and judges them; a replay reads them and judges them. Nothing
//! else is judged, so a replay gives the same verdict as the watch.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::diagnosis::WatchEnd;
use crate::select_use::SelectUse;
use crate::snapshot::Process;
use crate::timeline::Look;
use crate::{Gap, Tier};

/// Schema name of a recording.
pub const RECORDING_SCHEMA: &str = "fdguard.recording/1";

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingHeader {
    /// [`RECORDING_SCHEMA`].
    pub schema: String,
    /// The version of fdguard that wrote it.
    pub version: String,
    /// When the watch began.
    pub started_at: Timestamp,
    /// The requested seconds between two looks.
    pub every: f64,
}

impl RecordingHeader {
    /// The first line of a watch that begins now.
    #[must_use]
    pub fn new(started_at: Timestamp, every: f64) -> Self {
        Self {
            schema: RECORDING_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at,
            every,
        }
    }
}

/// Every line after the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordingEntry {
    /// A process appears.
    Process(Box<Appearance>),
    /// A look at a process.
    Look {
        /// Which.
        id: u32,
        /// What was seen.
        look: Box<Look>,
    },
    /// A process ended.
    Gone {
        /// Which.
        id: u32,
        /// When, in seconds since the watch began.
        at: f64,
    },
    /// Something could not be observed.
    Gap(Gap),
    /// The watch ended, and why.
    End {
        /// Why.
        ended: WatchEnd,
        /// When.
        ended_at: Timestamp,
    },
}

/// A process that appears.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Appearance {
    /// Its number in this recording.
    pub id: u32,
    /// When, in seconds since the watch began.
    pub at: f64,
    /// The process.
    pub process: Process,
    /// How much can be observed.
    pub tier: Tier,
    /// Whether it can call `select()`; absent where that was not checked.
    pub select: Option<SelectUse>,
    /// The process that it replaces, after a restart.
    pub successor_of: Option<u32>,
}
