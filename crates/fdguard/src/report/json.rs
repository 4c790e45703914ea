//! Snapshots as JSON.

use std::io::Write;

use fdguard_core::document::{SNAPSHOTS_SCHEMA, SnapshotDocument};
use fdguard_core::{FdEntry, Gap, Snapshot, Summary};
use fdguard_probe::workers;
use serde::Serialize;

/// Writes a document in one line.
pub fn write_line(out: &mut dyn Write, document: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, document)?;
    Ok(writeln!(out)?)
}

/// The document around several snapshots.
#[derive(Serialize)]
struct Many<'a> {
    schema: &'static str,
    /// Descriptors of all of them together.
    count: Option<u64>,
    processes: usize,
    gaps: &'a [Gap],
}

/// Writes one document: a single snapshot as such, several in a wrapper.
pub fn write(
    out: &mut dyn Write,
    snapshots: &[(Snapshot, Summary)],
    gaps: &[Gap],
    many: bool,
) -> anyhow::Result<()> {
    // Serialise to memory first, on every core: writing through a writer costs more than the text
    // itself.
    let texts = workers::map(snapshots, 8, |(snapshot, summary)| {
        encode(snapshot, summary)
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

/// From this many descriptors on, the list of one snapshot is serialised on several cores.
const LONG: usize = 4096;
/// Approximate bytes per descriptor: a buffer that grows is copied each time.
const PER_FD: usize = 400;

fn encode(snapshot: &Snapshot, summary: &Summary) -> Result<Vec<u8>, serde_json::Error> {
    let fds = snapshot.fds.as_deref().unwrap_or_default();
    let mut text = Vec::with_capacity(4096 + PER_FD * fds.len());
    if fds.len() < LONG {
        serde_json::to_writer(&mut text, &SnapshotDocument::new(snapshot, summary))?;
        return Ok(text);
    }
    serde_json::to_writer(&mut text, &SnapshotDocument::without_fds(snapshot, summary))?;
    // The list comes last: cut off the closing brackets and add them back at the end.
    text.truncate(text.len() - b"]}".len());
    let chunks: Vec<&[FdEntry]> = fds.chunks(LONG / 4).collect();
    for (index, list) in workers::map(&chunks, 1, serde_json::to_vec)
        .into_iter()
        .enumerate()
    {
        let list = list?;
        text.extend_from_slice(if index > 0 { b"," } else { b"" });
        text.extend_from_slice(&list[1..list.len() - 1]);
    }
    text.extend_from_slice(b"]}");
    Ok(text)
}

fn io_error(error: &serde_json::Error) -> std::io::Error {
    std::io::Error::other(error.to_string())
}

/// The sum of the counts; `None` if one of them is unknown.
#[must_use]
pub fn total(snapshots: &[(Snapshot, Summary)]) -> Option<u64> {
    snapshots.iter().map(|(snapshot, _)| snapshot.count).sum()
}

#[cfg(test)]
mod tests {
    use fdguard_core::document::{self, SnapshotDocument};
    use fdguard_core::{Snapshot, Summary};

    use super::{LONG, encode};
    use crate::tui::top::fixture;

    /// The fixture's snapshot with its descriptors repeated.
    fn long(count: usize) -> Snapshot {
        let mut snapshot = fixture::holdings().snapshot;
        let one = snapshot.fds.take().unwrap_or_default();
        let numbered = one.iter().cycle().take(count).zip(0..).map(|(entry, fd)| {
            let mut entry = entry.clone();
            entry.fd = fd;
            entry
        });
        snapshot.fds = Some(numbered.collect());
        snapshot
    }

    #[test]
    fn a_list_written_in_pieces_is_the_same_text() {
        for count in [0, 1, LONG - 1, LONG, LONG + 1, 3 * LONG] {
            let snapshot = long(count);
            let summary = Summary::summarize(&snapshot);
            let whole = serde_json::to_vec(&SnapshotDocument::new(&snapshot, &summary)).unwrap();
            let text = encode(&snapshot, &summary).unwrap();
            assert!(text == whole, "{count} descriptors");
            assert_eq!(document::read(&text).unwrap(), [snapshot]);
        }
    }
}
