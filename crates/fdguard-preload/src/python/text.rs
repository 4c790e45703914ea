//! Python strings as UTF-8, one piece at a time.

use fdguard_wire::python::encode_character;

use super::memory::{Memory, Span};
use super::record::Record;
use super::runtime::Layout;

/// `Py_TPFLAGS_UNICODE_SUBCLASS`, part of the stable ABI.
const IS_UNICODE: u64 = 1 << 28;
/// Characters taken at a time.
const PIECE: usize = 64;

/// A string's characters, wherever they are.
struct Characters<M> {
    span: Span<M>,
    count: u64,
    /// Bytes per character: 1, 2 or 4.
    width: u8,
}

/// How much of a text was written.
pub(super) struct TextWritten {
    pub(super) length: u16,
    pub(super) is_cut: bool,
}

/// Why no text was written.
pub(super) enum TextTooLong {
    /// The pointer does not lead to a string.
    Unknown,
    /// The record has no room for it.
    NoRoom,
}

/// Appends the string's first `limit` bytes, whole characters only.
pub(super) fn append<M: Memory>(
    memory: M,
    layout: &Layout,
    string: u64,
    limit: u16,
    to: &mut Record<'_>,
) -> Result<TextWritten, TextTooLong> {
    let characters = find(memory, layout, string, limit).ok_or(TextTooLong::Unknown)?;
    let mut written = TextWritten {
        length: 0,
        is_cut: false,
    };
    let mut buffer = [0_u8; PIECE * 4];
    let mut taken = 0_u64;
    while taken < characters.count {
        let now = (characters.count - taken).min(PIECE as u64);
        let piece = characters
            .piece(taken, now, &mut buffer)
            .ok_or(TextTooLong::Unknown)?;
        taken = taken.saturating_add(now);
        if let Some(length) = whole(piece, &characters, &written, limit) {
            to.push(piece).ok_or(TextTooLong::NoRoom)?;
            written.length = length;
            continue;
        }
        // Never 0, which the compiler cannot see.
        for character in piece.chunks_exact(usize::from(characters.width).max(1)) {
            let mut utf8 = [0; 4];
            let utf8 = encode_character(character, &mut utf8);
            let more = u16::try_from(utf8.len()).unwrap_or(u16::MAX);
            let length = written.length.saturating_add(more);
            if length > limit {
                written.is_cut = true;
                return Ok(written);
            }
            to.push(utf8).ok_or(TextTooLong::NoRoom)?;
            written.length = length;
        }
    }
    Ok(written)
}

/// The length with the whole piece, if that needs no translation and stays within the limit.
fn whole<M>(
    piece: &[u8],
    characters: &Characters<M>,
    written: &TextWritten,
    limit: u16,
) -> Option<u16> {
    let length = written
        .length
        .checked_add(u16::try_from(piece.len()).ok()?)?;
    (characters.width == 1 && length <= limit && piece.is_ascii()).then_some(length)
}

/// The characters of the string object, at most one more than `limit`: enough to see that it is
/// cut.
fn find<M: Memory>(memory: M, layout: &Layout, string: u64, limit: u16) -> Option<Characters<M>> {
    let at = &layout.offsets;
    let object = memory.span(string, u64::from(at.unicode_ascii))?;
    let kind = object.word(at.object_type)?;
    if kind != layout.unicode_type {
        let length = u64::from(at.type_flags).checked_add(8)?;
        let flags = memory.span(kind, length)?.word(at.type_flags)?;
        if flags & IS_UNICODE == 0 {
            return None;
        }
    }
    let state = object.int(at.unicode_state)?.cast_unsigned();
    let has = |mask: u16| state & u32::from(mask) != 0;
    let width = (state & u32::from(at.state_kind)) >> at.state_kind.trailing_zeros();
    // 0 is a string of 3.9 to 3.11 that was never made ready: no code object has one.
    let width @ (1 | 2 | 4) = u8::try_from(width).ok()? else {
        return None;
    };
    let count = object.word(at.unicode_length)?;
    if count > i64::MAX.cast_unsigned() {
        return None;
    }
    let count = count.min(u64::from(limit).saturating_add(1));
    let start = if !has(at.state_is_compact) {
        let pointer = u64::from(at.unicode_any);
        let length = pointer.checked_add(8)?;
        memory.span(string, length)?.word(at.unicode_any)?
    } else if has(at.state_is_ascii) {
        string.checked_add(u64::from(at.unicode_ascii))?
    } else {
        string.checked_add(u64::from(at.unicode_compact))?
    };
    Some(Characters {
        span: memory.span(start, count.checked_mul(u64::from(width))?)?,
        count,
        width,
    })
}

impl<M: Memory> Characters<M> {
    fn piece<'b>(&self, from: u64, count: u64, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let width = u64::from(self.width);
        let length = usize::try_from(count.checked_mul(width)?).ok()?;
        let piece = buffer.get_mut(..length)?;
        self.span.read(from.checked_mul(width)?, piece)?;
        Some(piece)
    }
}
