//! The last output lines of a service, for the crash report.

use std::collections::VecDeque;

/// The most lines.
const LINES: usize = 20;
/// The most bytes, in total.
const BYTES: usize = 4 << 10;

/// The last lines that a service wrote.
#[derive(Clone, Debug, Default)]
pub struct LastLines {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl LastLines {
    /// Adds a line; its newline does not count.
    pub fn push(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        // The end of a very long line is more useful than its beginning.
        let line = &line[line.len().saturating_sub(BYTES)..];
        self.bytes += line.len();
        self.lines.push_back(line.to_vec());
        while self.lines.len() > LINES || self.bytes > BYTES {
            let Some(first) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= first.len();
        }
    }

    /// The lines, the oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().map(Vec::as_slice)
    }

    /// Clears them for a new start.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, LINES, LastLines};

    #[test]
    fn the_last_lines_are_kept_within_bounds() {
        let mut last = LastLines::default();
        for number in 0..100 {
            last.push(format!("line {number}\n").as_bytes());
        }
        let lines: Vec<_> = last.lines().collect();
        assert_eq!(lines.len(), LINES);
        assert_eq!(lines[LINES - 1], b"line 99");
        last.push(&[b'x'; 3000]);
        last.push(&[b'y'; 3000]);
        assert_eq!(last.lines().count(), 1);
        last.push(&[b'z'; 9000]);
        assert_eq!(last.lines().map(<[u8]>::len).sum::<usize>(), BYTES);
        last.clear();
        assert_eq!(last.lines().count(), 0);
    }
}
