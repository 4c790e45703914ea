//! Output in bounded memory: the beginning and the end are kept; what is dropped between them is
//! counted and hashed.

use std::collections::VecDeque;

use fdguard_core::hex;
use sha2::{Digest as _, Sha256};

use super::types::{DroppedOutput, ExecOutput};

/// Collects output as it arrives.
#[derive(Debug)]
pub(crate) struct Collector {
    head_room: usize,
    tail_room: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    bytes: u64,
    dropped: u64,
    lines: u64,
    hash: Sha256,
}

impl Collector {
    /// Keeps this many bytes, half of them from the start.
    pub(crate) fn new(cap: usize) -> Self {
        Self {
            head_room: cap / 2,
            tail_room: cap - cap / 2,
            head: Vec::new(),
            tail: VecDeque::new(),
            bytes: 0,
            dropped: 0,
            lines: 0,
            hash: Sha256::new(),
        }
    }

    /// All bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds output.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        let room = self.head_room.saturating_sub(self.head.len());
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_room);
        let from_tail = excess.min(self.tail.len());
        self.drop_from_tail(from_tail);
        let (gone, kept) = rest.split_at((excess - from_tail).min(rest.len()));
        self.count(gone);
        self.tail.extend(kept);
    }

    fn drop_from_tail(&mut self, count: usize) {
        let (first, second) = self.tail.as_slices();
        let (a, b) = (
            first.get(..count.min(first.len())).unwrap_or_default(),
            second
                .get(..count.saturating_sub(first.len()))
                .unwrap_or_default(),
        );
        for part in [a, b] {
            self.hash.update(part);
            self.lines += ends_of_lines(part);
            self.dropped += part.len() as u64;
        }
        drop(self.tail.drain(..count));
    }

    fn count(&mut self, gone: &[u8]) {
        self.hash.update(gone);
        self.lines += ends_of_lines(gone);
        self.dropped += gone.len() as u64;
    }

    /// What was kept, and what is missing.
    pub(crate) fn finish(mut self) -> ExecOutput {
        let tail = self.tail.make_contiguous();
        if self.dropped == 0 {
            self.head.extend_from_slice(tail);
            return ExecOutput {
                text: text(self.head),
                bytes: self.bytes,
                dropped: None,
            };
        }
        let dropped = DroppedOutput {
            bytes: self.dropped,
            lines: self.lines,
            sha256: hex::encode(&self.hash.finalize()),
        };
        let mut text = text(self.head);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&marker(&dropped));
        text.push_str(&String::from_utf8_lossy(tail));
        ExecOutput {
            text,
            bytes: self.bytes,
            dropped: Some(dropped),
        }
    }
}

/// The line that replaces what was dropped.
fn marker(dropped: &DroppedOutput) -> String {
    let DroppedOutput {
        bytes,
        lines,
        sha256,
    } = dropped;
    format!("[fdguard: {bytes} bytes ({lines} newlines) dropped here, sha256 {sha256}]\n")
}

/// Converts to text, without a copy if all of it is valid.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn ends_of_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn collected(cap: usize, pieces: &[Vec<u8>]) -> ExecOutput {
        let mut collector = Collector::new(cap);
        for piece in pieces {
            collector.push(piece);
        }
        collector.finish()
    }

    #[test]
    fn what_fits_is_kept_as_it_is() {
        let output = collected(10, &[b"0123".to_vec(), b"456789".to_vec()]);
        assert_eq!(output.text, "0123456789");
        assert_eq!((output.bytes, output.dropped), (10, None));
    }

    #[test]
    fn a_line_stands_where_something_is_missing() {
        let output = collected(4, &[b"ab\nc\nde".to_vec()]);
        let dropped = output.dropped.unwrap();
        assert_eq!((dropped.bytes, dropped.lines), (3, 2));
        let begin = "ab\n[fdguard: 3 bytes (2 newlines) dropped here, sha256 ";
        assert!(output.text.starts_with(begin), "{}", output.text);
        assert!(output.text.ends_with("]\nde"), "{}", output.text);
    }

    #[test]
    fn nothing_may_be_kept() {
        let output = collected(0, &[b"abc".to_vec()]);
        assert_eq!(output.dropped.map(|dropped| dropped.bytes), Some(3));
    }

    proptest! {
        #[test]
        fn head_dropped_and_tail_are_the_whole(
            cap in 0_usize..64,
            pieces in prop::collection::vec(prop::collection::vec(prop::sample::select(b"ab\n".to_vec()), 0..40), 0..12),
        ) {
            let whole = pieces.concat();
            let output = collected(cap, &pieces);
            prop_assert_eq!(output.bytes, whole.len() as u64);
            if whole.len() <= cap {
                prop_assert_eq!(output.text.as_bytes(), whole);
                prop_assert_eq!(output.dropped, None);
            } else {
                let missing = &whole[cap / 2..whole.len() - (cap - cap / 2)];
                let dropped = output.dropped.unwrap();
                prop_assert_eq!(dropped.bytes, missing.len() as u64);
                prop_assert_eq!(dropped.lines, ends_of_lines(missing));
                prop_assert_eq!(&dropped.sha256, &hex::encode(&Sha256::digest(missing)));
                prop_assert!(output.text.as_bytes().starts_with(&whole[..cap / 2]));
                prop_assert!(output.text.as_bytes().ends_with(&whole[whole.len() - (cap - cap / 2)..]));
            }
        }
    }
}
