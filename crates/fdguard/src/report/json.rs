//! Snapshots as JSON.

use std::io::{self, Write};

use fdguard_core::document::{self, SNAPSHOTS_SCHEMA, SnapshotDocument};
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
    out: &mut (dyn Write + Send),
    snapshots: &[(Snapshot, Summary)],
    gaps: &[Gap],
    many: bool,
) -> anyhow::Result<()> {
    if many {
        let head = Many {
            schema: SNAPSHOTS_SCHEMA,
            count: total(snapshots),
            processes: snapshots.len(),
            gaps,
        };
        let head = serde_json::to_vec(&head)?;
        out.write_all(head.strip_suffix(b"}").unwrap_or(&head))?;
        out.write_all(b",\"snapshots\":[")?;
    }
    write_pieces(out, snapshots)?;
    out.write_all(if many { b"]}\n" } else { b"\n" })?;
    Ok(())
}

/// So many descriptors are serialised at once: little enough for the caches, and for several cores
/// to share the work on one long list.
const PIECE: usize = 256;
/// Snapshots with up to so many descriptors are serialised in one go, several at once.
const SHORT: usize = 512;

/// A part of the text.
enum Piece<'a> {
    /// Whole snapshots, and whether any is before them.
    Whole(&'a [(Snapshot, Summary)], bool),
    /// A long snapshot up to its list.
    Head(&'a (Snapshot, Summary), bool),
    /// A part of its list, and whether it is the first.
    Fds(&'a [FdEntry], bool),
    /// The end of that snapshot.
    End,
}

/// Serialises on every core, and writes each piece as soon as those before it are written.
fn write_pieces(out: &mut (dyn Write + Send), snapshots: &[(Snapshot, Summary)]) -> io::Result<()> {
    workers::write_each(
        &pieces(snapshots),
        |piece, text| piece.encode(text).map_err(io::Error::from),
        |text| out.write_all(text),
    )
}

fn pieces(snapshots: &[(Snapshot, Summary)]) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = snapshots;
    while let [first, others @ ..] = rest {
        let follows = rest.len() < snapshots.len();
        let Some(fds) = first.0.fds.as_deref().filter(|fds| fds.len() > SHORT) else {
            let mut held = 0;
            let fit = rest.iter().take_while(|(snapshot, _)| {
                held += 8 + snapshot.fds.as_ref().map_or(0, Vec::len);
                held <= 8 + SHORT
            });
            let (whole, others) = rest.split_at(fit.count().max(1));
            pieces.push(Piece::Whole(whole, follows));
            rest = others;
            continue;
        };
        pieces.push(Piece::Head(first, follows));
        let parts = fds.chunks(PIECE).enumerate();
        pieces.extend(parts.map(|(index, part)| Piece::Fds(part, index == 0)));
        pieces.push(Piece::End);
        rest = others;
    }
    pieces
}

impl Piece<'_> {
    fn encode(&self, text: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let separate = |text: &mut Vec<u8>, follows: bool| {
            text.extend_from_slice(if follows { b"," } else { b"" });
        };
        match self {
            Self::Whole(list, follows) => {
                for (index, (snapshot, summary)) in list.iter().enumerate() {
                    separate(text, *follows || index > 0);
                    document::encode(&SnapshotDocument::new(snapshot, summary), text)?;
                }
            }
            Self::Head((snapshot, summary), follows) => {
                separate(text, *follows);
                document::encode(&SnapshotDocument::without_fds(snapshot, summary), text)?;
                // The list comes last: its end and that of the document are written after it.
                text.truncate(text.len() - b"]}".len());
            }
            Self::Fds(part, is_first) => {
                let start = text.len();
                document::encode_fds(part, text)?;
                text.pop();
                // The bracket becomes the separator.
                if *is_first {
                    text.remove(start);
                } else {
                    text[start] = b',';
                }
            }
            Self::End => text.extend_from_slice(b"]}"),
        }
        Ok(())
    }
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

    use super::{SHORT, write};
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
        let counts = [0, 1, SHORT, SHORT + 1, 2, 3 * SHORT, 3, 4];
        let all: Vec<_> = counts.map(long).into();
        let pair = |snapshot: &Snapshot| (snapshot.clone(), Summary::summarize(snapshot));
        let pairs: Vec<_> = all.iter().map(pair).collect();
        let mut together = Vec::new();
        write(&mut together, &pairs, &[], true).unwrap();
        assert_eq!(document::read(&together).unwrap(), all);
        for (snapshot, summary) in pairs {
            let mut whole =
                serde_json::to_vec(&SnapshotDocument::new(&snapshot, &summary)).unwrap();
            whole.push(b'\n');
            let mut text = Vec::new();
            let one = [(snapshot, summary)];
            write(&mut text, &one, &[], false).unwrap();
            assert!(text == whole, "{:?} descriptors", one[0].0.count);
        }
    }
}
