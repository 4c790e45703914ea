//! Writes frames as file, function and line, while their code objects are certain to be alive.

use fdguard_wire::python::LineFormat;

use super::memory::{Memory, Span};
use super::record::{
    ARENA_FULL, FILE_CUT, FILE_UNKNOWN, FUNCTION_CUT, FUNCTION_UNKNOWN, FrameHead, Record,
};
use super::runtime::Layout;
use super::text::{self, TextTooLong};
use super::walk::{PythonWalk, RawFrame};

/// The most bytes kept of a file name (`PATH_MAX`) and of a function's name.
const FILE_LIMIT: u16 = 4096;
const FUNCTION_LIMIT: u16 = 1024;
/// The largest line table that is searched.
const TABLE_LIMIT: u64 = 16 << 20;

/// The result of a rendering.
pub(super) struct RenderResult {
    /// The length of the record; 0 if not even one without frames fits.
    pub(super) length: usize,
    /// Every text and table was where the layout says.
    pub(super) is_whole: bool,
}

/// Writes as many frames into `bytes` as fit, innermost first. The innermost is read by `careful`,
/// for the reason given at [`super::walk::walk`].
pub(super) fn render<C: Memory, M: Memory>(
    careful: C,
    memory: M,
    layout: &Layout,
    frames: &[RawFrame],
    walked: &PythonWalk,
    bytes: &mut [u8],
) -> RenderResult {
    let mut rendered = RenderResult {
        length: 0,
        is_whole: true,
    };
    let Some(mut record) = Record::new(bytes) else {
        return rendered;
    };
    let mut flags = walked.flags();
    let mut is_innermost = true;
    for frame in frames {
        let written = record.begin_frame().and_then(|begin| {
            let written = if is_innermost {
                write(careful, layout, frame, begin, &mut record)
            } else {
                write(memory, layout, frame, begin, &mut record)
            };
            if written.is_none() {
                record.forget_frame(begin);
            }
            written
        });
        let Some(is_known) = written else {
            flags |= ARENA_FULL;
            break;
        };
        rendered.is_whole &= is_known;
        is_innermost = false;
    }
    rendered.length = record.end(flags);
    rendered
}

/// Whether its texts could be read; `None` if they do not fit.
fn write<M: Memory>(
    memory: M,
    layout: &Layout,
    frame: &RawFrame,
    begin: usize,
    record: &mut Record<'_>,
) -> Option<bool> {
    let mut head = FrameHead {
        line: line_of(memory, layout, frame).unwrap_or(0),
        first_line: frame.first_line,
        ..FrameHead::default()
    };
    match text::append(memory, layout, frame.file, FILE_LIMIT, record) {
        Ok(written) => {
            head.file = written.length;
            head.flags |= if written.is_cut { FILE_CUT } else { 0 };
        }
        Err(TextTooLong::Unknown) => head.flags |= FILE_UNKNOWN,
        Err(TextTooLong::NoRoom) => return None,
    }
    match text::append(memory, layout, frame.function, FUNCTION_LIMIT, record) {
        Ok(written) => {
            head.function = written.length;
            head.flags |= if written.is_cut { FUNCTION_CUT } else { 0 };
        }
        Err(TextTooLong::Unknown) => head.flags |= FUNCTION_UNKNOWN,
        Err(TextTooLong::NoRoom) => return None,
    }
    record.end_frame(begin, &head)?;
    Some(head.flags & (FILE_UNKNOWN | FUNCTION_UNKNOWN) == 0)
}

fn line_of<M: Memory>(memory: M, layout: &Layout, frame: &RawFrame) -> Option<u32> {
    let at = &layout.offsets;
    let code = memory.span(frame.code, u64::from(at.code_size))?;
    let table = code.word(at.code_lines)?;
    let bytes = memory.span(table, u64::from(at.bytes_start))?;
    if bytes.word(at.object_type)? != layout.bytes_type {
        return None;
    }
    let length = bytes.word(at.bytes_length)?;
    if length > TABLE_LIMIT {
        return None;
    }
    let start = table.checked_add(u64::from(at.bytes_start))?;
    let table = Bytes::new(memory.span(start, length)?, length);
    LineFormat::of(at.minor).line_at(table, frame.first_line, frame.instruction)
}

/// Bytes from memory, read a piece at a time.
struct Bytes<M> {
    span: Span<M>,
    length: u64,
    /// Where the next piece begins.
    next: u64,
    piece: [u8; 64],
    used: usize,
    filled: usize,
}

impl<M: Memory> Bytes<M> {
    const fn new(span: Span<M>, length: u64) -> Self {
        Self {
            span,
            length,
            next: 0,
            piece: [0; 64],
            used: 0,
            filled: 0,
        }
    }

    fn fill(&mut self) -> Option<()> {
        let left = self.length.checked_sub(self.next)?;
        let now = left.min(self.piece.len() as u64);
        let filled = usize::try_from(now).ok()?;
        self.span.read(self.next, self.piece.get_mut(..filled)?)?;
        self.next = self.next.checked_add(now)?;
        (self.used, self.filled) = (0, filled);
        Some(())
    }
}

impl<M: Memory> Iterator for Bytes<M> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.used >= self.filled {
            self.fill()?;
        }
        // An empty piece is the end.
        let byte = self.piece.get(..self.filled)?.get(self.used)?;
        self.used = self.used.saturating_add(1);
        Some(*byte)
    }
}
