//! A code object as text. Pure: over the bytes that the kernel or `/proc/PID/mem` gave.

use fdguard_kernel::CapturedCode;
use fdguard_wire::python::{LineFormat, PythonOffsets, encode_character};

/// A code object with what it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PythonCode {
    file: String,
    function: String,
    first_line: u32,
    format: LineFormat,
    /// `None` if it was not copied.
    lines: Option<Vec<u8>>,
}

impl PythonCode {
    /// `None` if its names were not copied.
    pub(super) fn decode(captured: &CapturedCode) -> Option<Self> {
        // Objects have the same offsets in every release of a version: that was checked when the
        // interpreter was recognised.
        let at = &PythonOffsets::of(captured.minor)?;
        let first_line = int(&captured.object, at.code_first_line)?;
        Some(Self {
            file: decode_string(&captured.file, at)?,
            function: decode_string(&captured.name, at)?,
            // Handmade code objects may have any number here.
            first_line: u32::try_from(first_line).unwrap_or(0),
            format: LineFormat::of(at.minor),
            lines: captured.lines.clone(),
        })
    }

    /// Whether lines can be named.
    pub(super) const fn is_whole(&self) -> bool {
        self.lines.is_some()
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn function(&self) -> &str {
        &self.function
    }

    /// The line of the instruction that begins this many bytes into the code.
    pub(super) fn line(&self, instruction: i32) -> Option<u32> {
        let lines = self.lines.as_deref()?.iter().copied();
        self.format.line_at(lines, self.first_line, instruction)
    }
}

/// Tells code objects at the same address apart, as `python_step` of the BPF programs does.
pub(super) fn identity(object: &[u8], at: &PythonOffsets) -> Option<u64> {
    let mix = |hash: u64, word: u64| {
        let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^ (hash >> 29)
    };
    let first_line = int(object, at.code_first_line)?.cast_unsigned();
    let hash = mix(0, word(object, at.code_filename)?);
    let hash = mix(hash, word(object, at.code_name)?);
    Some(mix(hash, first_line.into()))
}

/// How many bytes a string object takes, by its beginning. `None` if its characters are elsewhere.
pub(super) fn string_size(string: &[u8], at: &PythonOffsets) -> Option<u64> {
    let shape = StringShape::read(string, at)?;
    let characters = shape.count.checked_mul(u64::from(shape.width))?;
    characters.checked_add(u64::from(shape.start))
}

fn decode_string(string: &[u8], at: &PythonOffsets) -> Option<String> {
    let shape = StringShape::read(string, at)?;
    let size = usize::try_from(string_size(string, at)?).ok()?;
    let characters = string.get(usize::from(shape.start)..size)?;
    let mut text = Vec::with_capacity(characters.len());
    for character in characters.chunks_exact(shape.width.into()) {
        text.extend_from_slice(encode_character(character, &mut [0; 4]));
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Where a compact string has its characters.
struct StringShape {
    start: u16,
    count: u64,
    /// Bytes per character: 1, 2 or 4.
    width: u8,
}

impl StringShape {
    fn read(string: &[u8], at: &PythonOffsets) -> Option<Self> {
        let state = int(string, at.unicode_state)?.cast_unsigned();
        let has = |mask: u16| state & u32::from(mask) != 0;
        let width = (state & u32::from(at.state_kind)) >> at.state_kind.trailing_zeros();
        let width @ (1 | 2 | 4) = u8::try_from(width).ok()? else {
            return None;
        };
        let start = match has(at.state_is_ascii) {
            true => at.unicode_ascii,
            false => at.unicode_compact,
        };
        has(at.state_is_compact).then_some(Self {
            start,
            count: word(string, at.unicode_length)?,
            width,
        })
    }
}

/// A pointer or a size.
pub(super) fn word(bytes: &[u8], at: u16) -> Option<u64> {
    let bytes = bytes.get(usize::from(at)..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// A C `int`.
fn int(bytes: &[u8], at: u16) -> Option<i32> {
    let bytes = bytes.get(usize::from(at)..)?.first_chunk()?;
    Some(i32::from_le_bytes(*bytes))
}
