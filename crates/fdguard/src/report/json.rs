//! Snapshots as JSON.

use std::io::Write;

use fdguard_core::document::{SNAPSHOTS_SCHEMA, SnapshotDocument};
use fdguard_core::{Gap, Snapshot, Summary};
use serde::Serialize;
use serde::ser::{SerializeSeq as _, Serializer};

/// Several snapshots in one document.
#[derive(Serialize)]
struct Many<'a> {
    schema: &'static str,
    /// Descriptors of all of them together: the budget of a tree.
    count: Option<u64>,
    processes: usize,
    snapshots: List<'a>,
    gaps: &'a [Gap],
}

struct List<'a>(&'a [(Snapshot, Summary)]);

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for (snapshot, summary) in self.0 {
            list.serialize_element(&SnapshotDocument::new(snapshot, summary))?;
        }
        list.end()
    }
}

/// Writes one document: a single snapshot as itself, several under one roof.
pub fn write(
    out: &mut dyn Write,
    snapshots: &[(Snapshot, Summary)],
    gaps: &[Gap],
    many: bool,
) -> anyhow::Result<()> {
    match snapshots {
        [(snapshot, summary)] if !many => {
            serde_json::to_writer(&mut *out, &SnapshotDocument::new(snapshot, summary))?
        }
        _ => {
            let document = Many {
                schema: SNAPSHOTS_SCHEMA,
                count: total(snapshots),
                processes: snapshots.len(),
                snapshots: List(snapshots),
                gaps,
            };
            serde_json::to_writer(&mut *out, &document)?;
        }
    }
    writeln!(out)?;
    Ok(())
}

/// The sum of the counts; unknown as soon as one of them is.
#[must_use]
pub fn total(snapshots: &[(Snapshot, Summary)]) -> Option<u64> {
    snapshots.iter().map(|(snapshot, _)| snapshot.count).sum()
}
