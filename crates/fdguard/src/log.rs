//! Reads logs and searches them for descriptor symptoms.

use std::io::{ErrorKind, Read};

use anyhow::Context as _;
use fdguard_core::explain::LogScanner;

use crate::exit::HintedError;

/// Large enough that read calls do not dominate.
const PIECE: usize = 256 << 10;

/// Signatures of files that are not text, and how to convert them.
const PACKED: [(&[u8], &str, &str); 5] = [
    (b"\x1f\x8b", "is compressed", "zcat LOG | fdguard explain"),
    (
        b"\x28\xb5\x2f\xfd",
        "is compressed",
        "zstdcat LOG | fdguard explain",
    ),
    (b"\xfd7zXZ", "is compressed", "xzcat LOG | fdguard explain"),
    (b"BZh", "is compressed", "bzcat LOG | fdguard explain"),
    (
        b"LPKSHHRH",
        "is a journal",
        "journalctl --file LOG | fdguard explain",
    ),
];

/// Feeds a log to the scanner in pieces.
pub(crate) fn scan(
    scanner: &mut LogScanner<'_>,
    mut log: impl Read,
    name: &str,
) -> anyhow::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut is_first = true;
    loop {
        let length = match log.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).with_context(|| name.to_owned()),
        };
        if std::mem::take(&mut is_first) {
            refuse_packed(&piece[..length], name)?;
        }
        scanner.feed(&piece[..length]);
    }
}

/// Refuses compressed files: "nothing found" would be wrong for bytes that are not text.
fn refuse_packed(beginning: &[u8], name: &str) -> anyhow::Result<()> {
    let packed = PACKED
        .iter()
        .find(|(magic, ..)| beginning.starts_with(magic));
    match packed {
        Some((_, what, hint)) => Err(HintedError::look(format!("{name}: {what}"), *hint).into()),
        None => Ok(()),
    }
}
