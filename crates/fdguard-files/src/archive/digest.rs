//! Content of a file in one pass: bytes, lines, hash, and how it ends.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use fdguard_core::hex;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::read::piece;

/// How much is in memory at once.
const PIECE: usize = 1 << 18;
/// A longer last line is not parsed.
const LONGEST_LINE: u64 = 16 << 20;

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tail {
    /// Bytes after the last newline: an unfinished line. 0 if there are none.
    pub torn_bytes: u64,
    /// Whether the last line is JSON; absent if the name does not promise JSON, the file is empty,
    /// or the line is too long to parse.
    pub last_line_is_json: Option<bool>,
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) lines: u64,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    pub(super) tail: Tail,
}

/// Takes a file piece by piece.
#[derive(Clone, Debug, Default)]
pub(super) struct Scanner {
    hash: Sha256,
    lines: u64,
    bytes: u64,
    /// Offset of the line that has no newline yet.
    open: u64,
    /// Offset of the last complete line.
    last: u64,
}

impl Scanner {
    pub(super) fn push_bytes(&mut self, piece: &[u8]) {
        let ends = piece.iter().filter(|byte| **byte == b'\n').count();
        self.lines += ends as u64;
        if let Some(end) = piece.iter().rposition(|byte| *byte == b'\n') {
            let before = piece[..end].iter().rposition(|byte| *byte == b'\n');
            self.last = before.map_or(self.open, |at| self.bytes + at as u64 + 1);
            self.open = self.bytes + end as u64 + 1;
        }
        self.hash.update(piece);
        self.bytes += piece.len() as u64;
    }

    /// Start and end of the last line.
    fn last_line(&self) -> (u64, u64) {
        let start = if self.bytes > self.open {
            self.open
        } else {
            self.last
        };
        (start, self.bytes)
    }

    /// The result. The last line is read again from the file.
    pub(super) fn finish(self, file: &File, has_json_lines: bool) -> io::Result<Contents> {
        let (start, end) = self.last_line();
        let is_asked = has_json_lines && self.bytes > 0 && end - start <= LONGEST_LINE;
        let last_line_is_json = if is_asked {
            Some(is_json(&piece(file, start, end - start)?))
        } else {
            None
        };
        Ok(Contents {
            lines: self.lines,
            bytes: self.bytes,
            sha256: hex::encode(&self.hash.finalize()),
            tail: Tail {
                torn_bytes: self.bytes - self.open,
                last_line_is_json,
            },
        })
    }
}

fn is_json(line: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}

/// Passes each piece of a file to `each`, until the end or until `each` returns false.
pub(super) fn pieces(
    file: &File,
    mut each: impl FnMut(&[u8]) -> io::Result<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    loop {
        match file.read_at(&mut buffer, at) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                at += read as u64;
                if !each(&buffer[..read])? {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads a whole file.
pub(super) fn read_contents(file: &File, has_json_lines: bool) -> io::Result<Contents> {
    let mut scanner = Scanner::default();
    pieces(file, |piece| {
        scanner.push_bytes(piece);
        Ok(true)
    })?;
    scanner.finish(file, has_json_lines)
}

/// Whether one file is a prefix of another.
pub(super) fn is_beginning_of(part: &File, whole: &File) -> io::Result<bool> {
    let mut at = 0;
    let mut is_same = true;
    pieces(part, |bytes| {
        is_same = piece(whole, at, bytes.len() as u64)? == bytes;
        at += bytes.len() as u64;
        Ok(is_same)
    })?;
    Ok(is_same)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use proptest::prelude::*;

    use super::{Contents, Scanner, is_beginning_of, read_contents};

    fn file(bytes: &[u8]) -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, bytes).unwrap();
        let file = File::open(path).unwrap();
        (dir, file)
    }

    fn contents(bytes: &[u8]) -> Contents {
        read_contents(&file(bytes).1, true).unwrap()
    }

    #[test]
    fn tails_are_told() {
        let table: [(&[u8], u64, u64, Option<bool>); 7] = [
            (b"", 0, 0, None),
            (b"{}\n", 1, 0, Some(true)),
            (b"{}\n{\"a\":", 1, 5, Some(false)),
            (b"{}\n{}", 1, 2, Some(true)),
            (b"no\n", 1, 0, Some(false)),
            (b"{}\n\n", 2, 0, Some(false)),
            (b"x", 0, 1, Some(false)),
        ];
        for (bytes, lines, torn, json) in table {
            let seen = contents(bytes);
            let tail = (seen.tail.torn_bytes, seen.tail.last_line_is_json);
            assert_eq!((seen.lines, tail), (lines, (torn, json)), "{bytes:?}");
        }
        assert_eq!(
            contents(b"").sha256,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_beginning_is_told_from_something_else() {
        let (_a, whole) = file(b"one\ntwo\n");
        for (part, wanted) in [
            (&b""[..], true),
            (b"one\nt", true),
            (b"one\ntwo\n", true),
            (b"One", false),
            (b"one\ntwo\nthree", false),
        ] {
            let (_b, part) = file(part);
            assert_eq!(is_beginning_of(&part, &whole).unwrap(), wanted);
        }
    }

    proptest! {
        #[test]
        fn however_it_is_cut_into_pieces_the_last_line_is_the_same(text in "[a\n]{0,40}", cut in 0usize..41) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            let mut scanner = Scanner::default();
            scanner.push_bytes(&bytes[..cut]);
            scanner.push_bytes(&bytes[cut..]);
            let (start, end) = scanner.last_line();
            let wanted = text.split_inclusive('\n').next_back().unwrap_or("");
            prop_assert_eq!(&text[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()], wanted);
            prop_assert_eq!(scanner.lines, text.matches('\n').count() as u64);
        }
    }
}
