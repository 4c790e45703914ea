//! The `fdguard.snapshot/1` document: the observations and the conclusions, in one object.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::lint::LintHit;
use crate::snapshot::{Ceilings, Limits, Process, Via};
use crate::summary::{ClassCount, TargetCount};
use crate::wall::Wall;
use crate::{FdEntry, Gap, Snapshot, Summary, Tier, json_text};

/// Schema name of a single snapshot.
pub const SNAPSHOT_SCHEMA: &str = "fdguard.snapshot/1";
/// Schema name of several snapshots in one document.
pub const SNAPSHOTS_SCHEMA: &str = "fdguard.snapshots/1";

/// A snapshot and its summary as written.
#[derive(Debug, Serialize)]
pub struct SnapshotDocument<'a> {
    schema: &'static str,
    taken_at: Timestamp,
    tier: Tier,
    via: Via,
    process: &'a Process,
    #[serde(flatten)]
    held: HeldFields<'a>,
    lints: &'a [LintHit],
    gaps: &'a [Gap],
    /// Last: it is the longest, and a streaming writer appends here.
    fds: Option<&'a [FdEntry]>,
}

impl<'a> SnapshotDocument<'a> {
    /// Combines both.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, summary: &'a Summary) -> Self {
        Self {
            schema: SNAPSHOT_SCHEMA,
            taken_at: snapshot.taken_at,
            tier: snapshot.tier,
            via: snapshot.via,
            process: &snapshot.process,
            held: HeldFields::new(snapshot, summary),
            lints: &summary.lints,
            gaps: &snapshot.gaps,
            fds: snapshot.fds.as_deref(),
        }
    }

    /// The same with an empty list of descriptors, to be filled in by the writer.
    #[must_use]
    pub fn without_fds(snapshot: &'a Snapshot, summary: &'a Summary) -> Self {
        Self {
            fds: Some(&[]),
            ..Self::new(snapshot, summary)
        }
    }
}

/// Appends a document as JSON. It is here, and not where it is called, to be compiled for speed.
pub fn encode(
    document: &SnapshotDocument<'_>,
    text: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    json_text::append(document, text)
}

/// The same for a list of descriptors.
pub fn encode_fds(fds: &[FdEntry], text: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    json_text::append(&fds, text)
}

/// What a process has open, in a snapshot and in the doctor's document.
#[derive(Debug, Serialize)]
pub struct HeldFields<'a> {
    limits: Limits,
    count: Option<u64>,
    lowest: Option<u64>,
    highest: Option<u64>,
    percent_of_soft: Option<f64>,
    table_size: Option<u64>,
    crossed_1024: Option<bool>,
    walls: &'a [Wall],
    classes: Option<&'a [ClassCount]>,
    targets: Option<&'a [TargetCount]>,
    patterns: &'a [String],
    host: &'a Ceilings,
}

impl<'a> HeldFields<'a> {
    /// All of it.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, summary: &'a Summary) -> Self {
        Self {
            limits: snapshot.limits,
            count: snapshot.count,
            lowest: summary.lowest,
            highest: summary.highest,
            percent_of_soft: summary.percent_of_soft,
            table_size: snapshot.table_size,
            crossed_1024: summary.crossed_1024,
            walls: &summary.walls,
            classes: summary.classes.as_deref(),
            targets: summary.targets.as_deref(),
            patterns: &summary.patterns,
            host: &snapshot.host,
        }
    }

    /// The same with at most so many targets.
    #[must_use]
    pub fn with_targets(self, most: usize) -> Self {
        let targets = self.targets.map(|all| &all[..all.len().min(most)]);
        Self { targets, ..self }
    }
}

/// A stored document as read back: only the observations. The reading version draws the conclusions
/// again.
#[derive(Deserialize)]
struct StoredSnapshot {
    schema: String,
    taken_at: Timestamp,
    #[serde(default = "full")]
    tier: Tier,
    #[serde(default = "by_proc")]
    via: Via,
    process: Process,
    limits: Limits,
    count: Option<u64>,
    table_size: Option<u64>,
    fds: Option<Vec<FdEntry>>,
    #[serde(default)]
    host: Ceilings,
    #[serde(default)]
    gaps: Vec<Gap>,
}

fn full() -> Tier {
    Tier::Full
}

fn by_proc() -> Via {
    Via::Proc
}

#[derive(Deserialize)]
struct StoredMany {
    snapshots: Vec<StoredSnapshot>,
}

#[derive(Deserialize)]
struct Schema {
    schema: String,
}

/// Why a stored file is not a snapshot.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// Not JSON, or not the shape that its schema promises.
    Malformed(serde_json::Error),
    /// A document of another kind or version.
    Schema(String),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "not a snapshot: {error}"),
            Self::Schema(schema) => {
                write!(
                    f,
                    "not a snapshot: its schema is {schema:?}, expected {SNAPSHOT_SCHEMA:?}"
                )
            }
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads one stored document: a snapshot, or several in one.
pub fn read(json: &[u8]) -> Result<Vec<Snapshot>, ReadError> {
    let Schema { schema } = serde_json::from_slice(json).map_err(ReadError::Malformed)?;
    match schema.as_str() {
        SNAPSHOT_SCHEMA => {
            let one: StoredSnapshot = serde_json::from_slice(json).map_err(ReadError::Malformed)?;
            Ok(vec![one.into_snapshot()?])
        }
        SNAPSHOTS_SCHEMA => {
            let many: StoredMany = serde_json::from_slice(json).map_err(ReadError::Malformed)?;
            many.snapshots
                .into_iter()
                .map(StoredSnapshot::into_snapshot)
                .collect()
        }
        _ => Err(ReadError::Schema(schema)),
    }
}

impl StoredSnapshot {
    fn into_snapshot(self) -> Result<Snapshot, ReadError> {
        if self.schema != SNAPSHOT_SCHEMA {
            return Err(ReadError::Schema(self.schema));
        }
        let mut fds = self.fds;
        if let Some(fds) = &mut fds {
            fds.sort_by_key(|entry| entry.fd);
        }
        Ok(Snapshot {
            taken_at: self.taken_at,
            tier: self.tier,
            via: self.via,
            process: self.process,
            limits: self.limits,
            count: self.count,
            table_size: self.table_size,
            host: self.host,
            fds,
            gaps: self.gaps,
        })
    }
}

#[cfg(test)]
mod tests;
