//! Snapshots as JSON.

use std::io::Write;

use fdguard_core::document::{SNAPSHOTS_SCHEMA, SnapshotDocument};
use fdguard_core::{Gap, Snapshot, Summary};
use fdguard_probe::workers;
use serde::Serialize;

/// What stands around several snapshots.
#[derive(Serialize)]
struct Many<'a> {
    schema: &'static str,
    /// Descriptors of all of them together: the budget of a tree.
    count: Option<u64>,
    processes: usize,
    gaps: &'a [Gap],
}

/// Writes one document: a single snapshot as itself, several under one roof.
pub fn write(
    out: &mut dyn Write,
    snapshots: &[(Snapshot, Summary)],
    gaps: &[Gap],
    many: bool,
) -> anyhow::Result<()> {
    // To memory first, on every core: a writer in between costs more than the text itself.
    let texts = workers::map(snapshots, 8, |(snapshot, summary)| {
        // About as much as the text takes: a buffer that grows is copied each time.
        let room = 4096 + 400 * snapshot.fds.as_ref().map_or(0, Vec::len);
        let mut text = Vec::with_capacity(room);
        serde_json::to_writer(&mut text, &SnapshotDocument::new(snapshot, summary)).map(|()| text)
    });
    if let ([text], false) = (texts.as_slice(), many) {
        out.write_all(text.as_ref().map_err(io_error)?)?;
    } else {
        let head = Many {
            schema: SNAPSHOTS_SCHEMA,
            count: total(snapshots),
            processes: snapshots.len(),
            gaps,
        };
        let head = serde_json::to_vec(&head)?;
        out.write_all(head.strip_suffix(b"}").unwrap_or(&head))?;
        out.write_all(b",\"snapshots\":[")?;
        for (index, text) in texts.iter().enumerate() {
            out.write_all(if index > 0 { b"," } else { b"" })?;
            out.write_all(text.as_ref().map_err(io_error)?)?;
        }
        out.write_all(b"]}")?;
    }
    writeln!(out)?;
    Ok(())
}

fn io_error(error: &serde_json::Error) -> std::io::Error {
    std::io::Error::other(error.to_string())
}

/// The sum of the counts; unknown as soon as one of them is.
#[must_use]
pub fn total(snapshots: &[(Snapshot, Summary)]) -> Option<u64> {
    snapshots.iter().map(|(snapshot, _)| snapshot.count).sum()
}
