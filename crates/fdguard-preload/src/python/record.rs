//! The record of one stack, as written; `language.rs` reads it. All numbers little-endian.
//!
//! ```text
//! stack  version u8 = 1 · flags u8 · frames u16 · that many frames, the innermost first
//! frame  flags u8 · line u32 · first line u32 · length of file u16 · length of function u16 · file · function
//! ```
//!
//! A line of 0 is unknown. Text is UTF-8; a byte of a file name that is not valid UTF-8 and that
//! Python had escaped (`surrogateescape`) is written as it is in the file system.

/// The version that this module writes.
pub(crate) const VERSION: u8 = 1;

/// Of a stack: it is deeper than the frames that were asked for.
pub(crate) const TRUNCATED: u8 = 1;
/// Of a stack: the walk ended at something that is not a frame.
pub(crate) const BROKEN: u8 = 2;
/// Of a stack: the record had no room for all frames.
pub(crate) const ARENA_FULL: u8 = 4;

/// Of a frame: the file name was cut.
pub(crate) const FILE_CUT: u8 = 1;
/// Of a frame: the function's name was cut.
pub(crate) const FUNCTION_CUT: u8 = 2;
/// Of a frame: the file name could not be read.
pub(crate) const FILE_UNKNOWN: u8 = 4;
/// Of a frame: the function's name could not be read.
pub(crate) const FUNCTION_UNKNOWN: u8 = 8;

const STACK_HEAD: usize = 4;
const FRAME_HEAD: usize = 13;

/// A stack's record, being written into borrowed bytes.
pub(crate) struct Record<'a> {
    bytes: &'a mut [u8],
    used: usize,
    frames: u16,
}

/// What precedes a frame's text.
#[derive(Default)]
pub(crate) struct FrameHead {
    pub(crate) flags: u8,
    pub(crate) line: u32,
    pub(crate) first_line: u32,
    pub(crate) file: u16,
    pub(crate) function: u16,
}

impl<'a> Record<'a> {
    /// `None` if there is no room even for an empty record.
    pub(crate) fn new(bytes: &'a mut [u8]) -> Option<Self> {
        (bytes.len() >= STACK_HEAD).then_some(Self {
            bytes,
            used: STACK_HEAD,
            frames: 0,
        })
    }

    /// Reserves space for a frame's head, which [`Self::end_frame`] fills. Returns its offset.
    pub(crate) fn begin_frame(&mut self) -> Option<usize> {
        let begin = self.used;
        self.frames.checked_add(1)?;
        self.push(&[0; FRAME_HEAD])?;
        Some(begin)
    }

    /// Appends all of it, or nothing.
    pub(crate) fn push(&mut self, text: &[u8]) -> Option<()> {
        let end = self.used.checked_add(text.len())?;
        self.bytes.get_mut(self.used..end)?.copy_from_slice(text);
        self.used = end;
        Some(())
    }

    /// Completes the frame that began there.
    pub(crate) fn end_frame(&mut self, begin: usize, head: &FrameHead) -> Option<()> {
        let end = begin.checked_add(FRAME_HEAD)?;
        let place = self.bytes.get_mut(begin..end)?;
        let [l0, l1, l2, l3] = head.line.to_le_bytes();
        let [s0, s1, s2, s3] = head.first_line.to_le_bytes();
        let [f0, f1] = head.file.to_le_bytes();
        let [n0, n1] = head.function.to_le_bytes();
        place.copy_from_slice(&[head.flags, l0, l1, l2, l3, s0, s1, s2, s3, f0, f1, n0, n1]);
        self.frames = self.frames.checked_add(1)?;
        Some(())
    }

    /// Removes a frame that did not fit.
    pub(crate) const fn forget_frame(&mut self, begin: usize) {
        self.used = begin;
    }

    /// Completes the record and returns its length.
    pub(crate) fn end(self, flags: u8) -> usize {
        let [low, high] = self.frames.to_le_bytes();
        if let Some(head) = self.bytes.get_mut(..STACK_HEAD) {
            head.copy_from_slice(&[VERSION, flags, low, high]);
        }
        self.used
    }
}
