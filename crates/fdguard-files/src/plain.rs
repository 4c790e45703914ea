//! Files that are not databases: finds foreign data inside text, and at the start of other files.
//!
//! The scanner is pure and takes the file in pieces. In text the first bytes of a TLS record are
//! control characters that do not occur otherwise, so every match counts. In other files any
//! pattern occurs by chance, so only the traces of a stale descriptor at the start count.

use std::fs::File;
use std::io::{self, Read};

use crate::finding::FileFinding;
use crate::tls::{self, HEAD, TlsRecord};

/// Maximum number of findings per file.
const MOST: usize = 64;
/// A run of this many zeros is not text.
const ZEROS: u64 = 16;
/// A piece of the file.
const PIECE: usize = 1 << 16;

/// Whether these first bytes are mostly text, with or without foreign data in it.
#[must_use]
pub fn is_text(first: &[u8]) -> bool {
    if first.is_empty() {
        return false;
    }
    let mut in_runs = 0;
    for chunk in first.utf8_chunks() {
        let is_text = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\u{1b}');
        for run in chunk.valid().split(|c| !is_text(c)) {
            in_runs += if run.len() >= 8 { run.len() } else { 0 };
        }
    }
    let zeros = first.iter().filter(|byte| **byte == 0).count();
    in_runs * 2 >= first.len() && zeros * 3 <= first.len()
}

/// Traces of a stale descriptor at the start of a non-text file: an alert, or consecutive records.
#[must_use]
pub fn at_start(first: &[u8]) -> Vec<FileFinding> {
    let records = tls::at_start(first);
    let is_chain =
        records.len() > 1 || records.first().is_some_and(|(_, record)| record.is_alert());
    let told = records.into_iter().filter(|_| is_chain).take(MOST);
    told.map(|(at, record)| {
        let text = format!(
            "{record} at bytes {at}..{}: {}",
            at + record.total() - 1,
            record.operation(Some(at))
        );
        FileFinding::critical("tls-record", Some(at), text).long(Some(record.total()))
    })
    .collect()
}

/// Scans text and finds foreign data in it.
#[derive(Debug, Default)]
pub struct PlainTextScanner {
    /// Bytes scanned.
    at: u64,
    /// The line that the next byte belongs to, from 1.
    line: u64,
    /// The last bytes of the previous piece, in which a record may start.
    tail: Vec<u8>,
    /// End of the last record.
    until: u64,
    /// How many zeros came last.
    zeros: u64,
    found: Vec<FileFinding>,
    /// Number of findings beyond the maximum.
    more: u64,
    last: Option<u8>,
}

impl PlainTextScanner {
    /// From the first byte.
    #[must_use]
    pub fn new() -> Self {
        Self {
            line: 1,
            ..Self::default()
        }
    }

    /// Takes the next piece.
    pub fn push_bytes(&mut self, piece: &[u8]) {
        let mut bytes = std::mem::take(&mut self.tail);
        bytes.extend_from_slice(piece);
        // The last four bytes may begin a record.
        let whole = bytes.len().saturating_sub(HEAD - 1);
        self.scan(&bytes, whole);
        self.tail = bytes.split_off(whole);
    }

    /// The findings.
    #[must_use]
    pub fn finish(mut self) -> Vec<FileFinding> {
        let rest = std::mem::take(&mut self.tail);
        self.scan(&rest, rest.len());
        self.end_zeros();
        if self.more > 0 {
            let text = format!("{} more findings of this kind omitted", self.more);
            self.found.push(FileFinding::info("more", None, text));
        }
        if self.last.is_some_and(|byte| byte != b'\n') {
            let text = format!(
                "the last line ({}) has no newline: it is being written or was truncated",
                self.line
            );
            self.found
                .push(FileFinding::info("torn-tail", Some(self.at), text));
        }
        self.found
    }

    fn scan(&mut self, bytes: &[u8], whole: usize) {
        for index in 0..whole {
            let byte = bytes[index];
            if byte == 0 {
                self.zeros += 1;
            } else {
                self.end_zeros();
            }
            if matches!(byte, 0x14..=0x17)
                && self.at >= self.until
                && let Some(record) = TlsRecord::parse(&bytes[index..])
            {
                self.record(&record);
            }
            self.line += u64::from(byte == b'\n');
            self.at += 1;
            self.last = Some(byte);
        }
    }

    fn record(&mut self, record: &TlsRecord) {
        self.until = self.at + record.total();
        let place = if matches!(self.last, None | Some(b'\n')) {
            "at the start of"
        } else {
            "in the middle of"
        };
        let text = format!(
            "{record} {place} line {}: {}. Readers fail at this line; the lines around it are intact",
            self.line,
            record.operation(None)
        );
        self.tell(
            FileFinding::critical("tls-record", Some(self.at), text).long(Some(record.total())),
        );
    }

    fn end_zeros(&mut self) {
        let zeros = std::mem::take(&mut self.zeros);
        // Zeros inside a record are part of its finding.
        if zeros >= ZEROS && self.at >= self.until {
            let text = format!(
                "{zeros} zero bytes in line {}: a write that never reached the disk, or a file that was truncated while it was being written",
                self.line
            );
            self.tell(FileFinding::warning("zeros", Some(self.at - zeros), text).long(Some(zeros)));
        }
    }

    fn tell(&mut self, finding: FileFinding) {
        if self.found.len() < MOST {
            self.found.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// Scans a whole file.
pub fn scan(mut file: &File) -> io::Result<Vec<FileFinding>> {
    let mut scanner = PlainTextScanner::new();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(scanner.finish()),
            Ok(length) => scanner.push_bytes(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PlainTextScanner, at_start, is_text};

    fn alert() -> Vec<u8> {
        let mut record = vec![0x17, 3, 3, 0, 0x13];
        record.extend((0..19u8).map(|n| n.wrapping_mul(37) | 0x80));
        record
    }

    #[test]
    fn r42_a_record_in_the_middle_of_a_log_has_its_line() {
        let mut text = b"{\"n\":1}\n{\"n\":2,\"te".to_vec();
        let at = text.len() as u64;
        text.extend(alert());
        text.extend(b"xt\":\"x\"}\n{\"n\":3}\n");
        assert!(is_text(&text));
        // However the pieces are cut.
        for size in [1, 2, 3, 7, 1000] {
            let mut scanner = PlainTextScanner::new();
            text.chunks(size)
                .for_each(|piece| scanner.push_bytes(piece));
            let found = scanner.finish();
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].offset, found[0].length), (Some(at), Some(24)));
            assert!(
                found[0].message.contains("in the middle of line 2"),
                "{}",
                found[0].message
            );
        }
    }

    #[test]
    fn text_without_anything_foreign_is_clean() {
        let text = "größe: 3 \u{1b}[1mbold\u{1b}[0m\tx\n".repeat(500);
        let mut scanner = PlainTextScanner::new();
        scanner.push_bytes(text.as_bytes());
        assert!(scanner.finish().is_empty());
        assert!(is_text(text.as_bytes()));
    }

    #[test]
    fn bytes_by_chance_are_no_text_and_no_records() {
        let mut state = 7u32;
        let bytes: Vec<u8> = (0..200_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .collect();
        assert!(!is_text(&bytes));
        assert!(at_start(&bytes).is_empty());
    }

    #[test]
    fn zeros_in_a_log_are_told_once() {
        let mut text = b"one line\n".repeat(20);
        text.extend([0; 100]);
        text.extend(b"\nanother\n");
        let mut scanner = PlainTextScanner::new();
        scanner.push_bytes(&text);
        let found = scanner.finish();
        assert_eq!(
            (found.len(), found[0].rule, found[0].length),
            (1, "zeros", Some(100))
        );
    }
}
