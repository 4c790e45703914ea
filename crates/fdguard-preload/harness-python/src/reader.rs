//! Reads the record of a Python stack; `fdguard-preload`'s `python/record.rs` describes its format.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;

const VERSION: u8 = 1;

/// A stack, the innermost frame first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stack<'a> {
    /// What was running.
    pub(crate) frames: Vec<Frame<'a>>,
    /// The stack is deeper than these frames.
    pub(crate) is_truncated: bool,
    /// The walk ended at something that is not a frame; the frames before it are correct.
    pub(crate) is_broken: bool,
    /// There was no room for the outer frames.
    pub(crate) is_short_of_room: bool,
}

/// One frame. Text is bytes: names of files need not be UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// As in the code object; `None` if it could not be read.
    pub(crate) file: Option<&'a [u8]>,
    /// Qualified from 3.11 on.
    pub(crate) function: Option<&'a [u8]>,
    /// `None` for instructions that the compiler added.
    pub(crate) line: Option<NonZeroU32>,
    /// The first line of the function.
    pub(crate) first_line: Option<NonZeroU32>,
    /// The file's name is longer than this.
    pub(crate) file_is_cut: bool,
    /// The function's name is longer than this.
    pub(crate) function_is_cut: bool,
}

impl<'a> Stack<'a> {
    /// Reads the record at the start of `bytes` and returns the rest. `None` if the record has
    /// another version or ends too early.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let ([version, flags, low, high], mut rest) = bytes.split_first_chunk()?;
        if *version != VERSION {
            return None;
        }
        let count = u16::from_le_bytes([*low, *high]);
        let mut frames = Vec::new();
        for _ in 0..count {
            let (frame, after) = Frame::read(rest)?;
            frames.push(frame);
            rest = after;
        }
        let stack = Self {
            frames,
            is_truncated: flags & 1 != 0,
            is_broken: flags & 2 != 0,
            is_short_of_room: flags & 4 != 0,
        };
        Some((stack, rest))
    }
}

impl<'a> Frame<'a> {
    fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let ([flags], rest) = bytes.split_first_chunk()?;
        let (line, rest) = rest.split_first_chunk()?;
        let (first_line, rest) = rest.split_first_chunk()?;
        let (file, rest) = rest.split_first_chunk()?;
        let (function, rest) = rest.split_first_chunk()?;
        let (file, rest) = rest.split_at_checked(u16::from_le_bytes(*file).into())?;
        let (function, rest) = rest.split_at_checked(u16::from_le_bytes(*function).into())?;
        let frame = Self {
            file: (flags & 4 == 0).then_some(file),
            function: (flags & 8 == 0).then_some(function),
            line: NonZeroU32::new(u32::from_le_bytes(*line)),
            first_line: NonZeroU32::new(u32::from_le_bytes(*first_line)),
            file_is_cut: flags & 1 != 0,
            function_is_cut: flags & 2 != 0,
        };
        Some((frame, rest))
    }
}

/// `/srv/app.py:12 in Pool.take`, with `?` for unknown parts.
impl fmt::Display for Frame<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: Option<&'_ [u8]>, is_cut| match text {
            Some(text) => {
                String::from_utf8_lossy(text).into_owned() + if is_cut { "…" } else { "" }
            }
            None => "?".to_owned(),
        };
        let line = self
            .line
            .map_or(Cow::Borrowed("?"), |line| line.to_string().into());
        let file = text(self.file, self.file_is_cut);
        let function = text(self.function, self.function_is_cut);
        write!(to, "{file}:{line} in {function}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &[u8] = b"\x01\x01\x02\x00\
        \x00\x0c\0\0\0\x0a\0\0\0\x04\0\x01\0a.pyf\
        \x0e\0\0\0\0\0\0\0\0\0\0\0\0rest";

    #[test]
    fn a_record_is_read_with_what_it_does_not_know() {
        let (stack, rest) = Stack::read(RECORD).expect("a record");
        assert_eq!(rest, b"rest");
        assert!(stack.is_truncated && !stack.is_broken && !stack.is_short_of_room);
        let text: Vec<String> = stack.frames.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["a.py:12 in f", "?:? in ?"]);
    }

    #[test]
    fn a_record_that_ends_early_is_none() {
        let whole = RECORD.len() - b"rest".len();
        for length in 0..whole {
            assert_eq!(Stack::read(&RECORD[..length]), None, "{length}");
        }
        assert_eq!(Stack::read(b"\x02\0\0\0"), None);
    }
}
