//! Splits bytes into lines. Pure; bytes that are not text pass unchanged.

/// A longer line is passed on in pieces of this size: nothing grows without bound.
pub(super) const LONGEST: usize = 64 << 10;

/// Holds the beginning of a line until its end arrives.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    held: Vec<u8>,
}

impl Splitter {
    /// Passes on each line with its newline, and pieces of very long ones without.
    pub(super) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.held.is_empty() && part.ends_with(b"\n") {
                each(part);
                continue;
            }
            self.held.extend_from_slice(part);
            if part.ends_with(b"\n") || self.held.len() >= LONGEST {
                each(&self.held);
                self.held.clear();
            }
        }
    }

    /// The writer is gone: passes on its unfinished line, with the missing newline.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.held.is_empty() {
            self.held.push(b'\n');
            each(&self.held);
            self.held.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LONGEST, Splitter};

    #[test]
    fn lines_are_whole_and_the_last_gets_its_newline() {
        let mut splitter = Splitter::default();
        let mut lines = Vec::new();
        for bytes in [&b"a"[..], b"b\nc\n\xff", b"", b"\nd"] {
            splitter.feed(bytes, |line| lines.push(line.to_vec()));
        }
        splitter.finish(|line| lines.push(line.to_vec()));
        splitter.finish(|line| lines.push(line.to_vec()));
        assert_eq!(lines, [&b"ab\n"[..], b"c\n", b"\xff\n", b"d\n"]);
    }

    #[test]
    fn a_line_without_end_goes_on_in_pieces() {
        let mut splitter = Splitter::default();
        let mut pieces = Vec::new();
        for _ in 0..9 {
            splitter.feed(&[b'a'; LONGEST / 4], |piece| pieces.push(piece.len()));
        }
        assert_eq!(pieces, [LONGEST, LONGEST]);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_or_changed(parts: Vec<Vec<u8>>) {
            let mut splitter = Splitter::default();
            let mut out = Vec::new();
            for part in &parts {
                splitter.feed(part, |line| out.extend_from_slice(line));
            }
            splitter.finish(|line| out.extend_from_slice(line));
            let mut expected = parts.concat();
            if !expected.is_empty() && !expected.ends_with(b"\n") {
                expected.push(b'\n');
            }
            prop_assert_eq!(out, expected);
        }
    }
}
