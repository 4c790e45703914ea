//! Where an interpreter keeps what the walk reads: a row of the table, checked against what the
//! running interpreter reports about itself.

use super::table::{DEBUG_3_13, TABLE};

/// Offsets in bytes, sizes, and the masks of a string's state. Fields that a version lacks are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PythonOffsets {
    /// The minor version: `3.minor`.
    pub minor: u16,
    /// `ob_type` of any object.
    pub object_type: u16,
    /// `tp_basicsize`.
    pub type_basic_size: u16,
    /// `tp_flags`.
    pub type_flags: u16,
    /// `_PyRuntime._finalizing`.
    pub runtime_finalizing: u16,
    /// `_PyRuntime`'s `autoTSSkey`: whether it is initialised, then the key of the thread states,
    /// both C `int`s.
    pub runtime_thread_key: u16,
    /// The size that `PyUnicode_Type` must have.
    pub unicode_size: u16,
    /// The number of characters.
    pub unicode_length: u16,
    /// Kind and flags of a string.
    pub unicode_state: u16,
    /// Where the characters of compact ASCII begin.
    pub unicode_ascii: u16,
    /// Where the characters of other compact strings begin.
    pub unicode_compact: u16,
    /// Where strings that are not compact keep the pointer to their characters.
    pub unicode_any: u16,
    /// The mask of the width of its characters.
    pub state_kind: u16,
    /// The mask of the flag: the characters follow the object.
    pub state_is_compact: u16,
    /// The mask of the flag: all are ASCII.
    pub state_is_ascii: u16,
    /// The size that `PyBytes_Type` must have.
    pub bytes_size: u16,
    /// The number of bytes.
    pub bytes_length: u16,
    /// Where they begin.
    pub bytes_start: u16,
    /// `co_filename`.
    pub code_filename: u16,
    /// `co_firstlineno`.
    pub code_first_line: u16,
    /// `co_lnotab` or `co_linetable`.
    pub code_lines: u16,
    /// `frame` up to 3.10, `cframe` in 3.11 and 3.12, then `current_frame`.
    pub thread_frame: u16,
    /// `thread_id` of a thread state: what `pthread_self` returned.
    pub thread_id: u16,
    /// `current_frame` of a `_PyCFrame`.
    pub cframe_current: u16,
    /// The size that `PyFrame_Type` must have; it follows from the layout of frames.
    pub frame_size: u16,
    /// The code object of a frame.
    pub frame_code: u16,
    /// The caller's frame.
    pub frame_back: u16,
    /// `f_lasti` up to 3.10, then a pointer into the code.
    pub frame_instruction: u16,
    /// `owner`, from 3.11 on.
    pub frame_owner: u16,
    /// The size that `PyCode_Type` must have.
    pub code_size: u16,
    /// `co_name` up to 3.10, then `co_qualname`.
    pub code_name: u16,
    /// `_co_firsttraceable`, from 3.11 on.
    pub code_first_traceable: u16,
    /// Where the instructions begin, from 3.11 on.
    pub code_start: u16,
    /// `tp_name`.
    pub type_name: u16,
    /// `tp_init`.
    pub type_init: u16,
    /// `tp_alloc`.
    pub type_alloc: u16,
    /// The number of items.
    pub tuple_length: u16,
    /// Where they begin.
    pub tuple_items: u16,
    /// The generator or coroutine of a frame, up to 3.10; later the owner shows whether it has one.
    pub frame_generator: u16,
    /// Where a frame's local variables begin: the arguments first.
    pub frame_locals: u16,
    /// A coroutine's pointer to its frame, up to 3.10; later the frame itself.
    pub generator_frame: u16,
}

impl PythonOffsets {
    /// One row for each minor version, in their order.
    pub const ALL: &[Self] = &TABLE;

    /// The row of `3.minor`.
    #[inline]
    #[must_use]
    pub fn of(minor: u16) -> Option<Self> {
        TABLE.into_iter().find(|row| row.minor == minor)
    }

    /// Up to 3.10 frames are objects.
    #[inline]
    #[must_use]
    pub const fn has_frame_objects(&self) -> bool {
        self.minor <= 10
    }

    /// In 3.11 and 3.12 the current frame is found through the C stack.
    #[inline]
    #[must_use]
    pub const fn has_cframe(&self) -> bool {
        self.minor == 11 || self.minor == 12
    }

    /// From 3.13 on the interpreter lists its offsets.
    #[inline]
    #[must_use]
    pub const fn has_debug_offsets(&self) -> bool {
        self.minor >= 13
    }

    /// How much of a frame is read.
    #[inline]
    #[must_use]
    pub const fn frame_span(&self) -> u64 {
        let instruction = self.frame_instruction as u64 + 8;
        let owner = self.frame_owner as u64 + 1;
        if instruction > owner {
            instruction
        } else {
            owner
        }
    }

    /// These offsets, with the runtime's, thread's and frame's replaced by those of the running
    /// interpreter. The table has offsets of objects that the interpreter does not list, so for
    /// objects the two must agree.
    ///
    /// The key of the thread states is not listed. It moves with its neighbours; who uses it
    /// compares the thread state it leads to with the thread.
    #[inline]
    #[must_use]
    pub fn as_reported(self, report: &PythonSelfReport) -> Option<Self> {
        let distance = self
            .runtime_thread_key
            .checked_sub(self.runtime_finalizing)?;
        let agreed = Self {
            runtime_finalizing: report.runtime_finalizing,
            runtime_thread_key: report.runtime_finalizing.checked_add(distance)?,
            thread_frame: report.thread_frame,
            thread_id: report.thread_id,
            frame_code: report.frame_code,
            frame_back: report.frame_back,
            frame_instruction: report.frame_instruction,
            frame_owner: report.frame_owner,
            ..self
        };
        (report.objects == Objects::of(&self)).then_some(agreed)
    }
}

/// The offsets of objects that both the table and `_Py_DebugOffsets` list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Objects([u16; 12]);

impl Objects {
    #[inline]
    const fn of(row: &PythonOffsets) -> Self {
        Self([
            row.code_filename,
            row.code_name,
            row.code_first_line,
            row.code_lines,
            row.code_start,
            row.object_type,
            row.type_flags,
            row.bytes_length,
            row.bytes_start,
            row.unicode_length,
            row.unicode_state,
            row.unicode_ascii,
        ])
    }
}

/// Where `_Py_DebugOffsets` keeps each offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct DebugOffsets {
    pub(super) version: u16,
    pub(super) free_threaded: u16,
    pub(super) runtime_finalizing: u16,
    pub(super) thread_frame: u16,
    pub(super) thread_id: u16,
    pub(super) frame_code: u16,
    pub(super) frame_back: u16,
    pub(super) frame_instruction: u16,
    pub(super) frame_owner: u16,
    pub(super) code_filename: u16,
    pub(super) code_name: u16,
    pub(super) code_first_line: u16,
    pub(super) code_lines: u16,
    pub(super) code_start: u16,
    pub(super) object_type: u16,
    pub(super) type_flags: u16,
    pub(super) bytes_length: u16,
    pub(super) bytes_start: u16,
    pub(super) unicode_length: u16,
    pub(super) unicode_state: u16,
    pub(super) unicode_ascii: u16,
}

/// How much of `_PyRuntime` a [`PythonSelfReport`] needs.
pub const DEBUG_SPAN: usize = 568;

/// What a running 3.13 reports about itself.
#[derive(Debug, Clone, Copy)]
pub struct PythonSelfReport {
    /// Encoded like `Py_Version`.
    pub version: u64,
    /// It was built without the GIL.
    pub is_free_threaded: bool,
    runtime_finalizing: u16,
    thread_frame: u16,
    thread_id: u16,
    frame_code: u16,
    frame_back: u16,
    frame_instruction: u16,
    frame_owner: u16,
    objects: Objects,
}

impl PythonSelfReport {
    /// Reads it from the first bytes of `_PyRuntime`. `None` without the cookie, or with an invalid
    /// offset.
    #[inline]
    #[must_use]
    pub fn read(runtime: &[u8; DEBUG_SPAN]) -> Option<Self> {
        let at = &DEBUG_3_13;
        if !runtime.starts_with(b"xdebugpy") {
            return None;
        }
        let word = |at: u16| {
            let bytes = runtime.get(usize::from(at)..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let offset = |at: u16| u16::try_from(word(at)?).ok();
        Some(Self {
            version: word(at.version)?,
            is_free_threaded: word(at.free_threaded)? != 0,
            runtime_finalizing: offset(at.runtime_finalizing)?,
            thread_frame: offset(at.thread_frame)?,
            thread_id: offset(at.thread_id)?,
            frame_code: offset(at.frame_code)?,
            frame_back: offset(at.frame_back)?,
            frame_instruction: offset(at.frame_instruction)?,
            frame_owner: offset(at.frame_owner)?,
            objects: Objects([
                offset(at.code_filename)?,
                offset(at.code_name)?,
                offset(at.code_first_line)?,
                offset(at.code_lines)?,
                offset(at.code_start)?,
                offset(at.object_type)?,
                offset(at.type_flags)?,
                offset(at.bytes_length)?,
                offset(at.bytes_start)?,
                offset(at.unicode_length)?,
                offset(at.unicode_state)?,
                offset(at.unicode_ascii)?,
            ]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{DEBUG_3_13, DEBUG_SPAN, PythonOffsets, PythonSelfReport};

    /// 3.13's own list, as the table has it, with one word changed.
    fn reported(place: u16, value: u64) -> Option<(PythonSelfReport, Option<PythonOffsets>)> {
        let row = PythonOffsets::of(13)?;
        let at = DEBUG_3_13;
        let mut bytes = [0; DEBUG_SPAN];
        let mut write = |place: u16, value: u64| {
            bytes[usize::from(place)..][..8].copy_from_slice(&value.to_le_bytes());
        };
        write(0, u64::from_le_bytes(*b"xdebugpy"));
        write(at.version, 0x030d_00f0);
        for (place, offset) in [
            (at.runtime_finalizing, row.runtime_finalizing),
            (at.thread_frame, row.thread_frame),
            (at.thread_id, row.thread_id),
            (at.frame_code, row.frame_code),
            (at.frame_back, row.frame_back),
            (at.frame_instruction, row.frame_instruction),
            (at.frame_owner, row.frame_owner),
            (at.code_filename, row.code_filename),
            (at.code_name, row.code_name),
            (at.code_first_line, row.code_first_line),
            (at.code_lines, row.code_lines),
            (at.code_start, row.code_start),
            (at.object_type, row.object_type),
            (at.type_flags, row.type_flags),
            (at.bytes_length, row.bytes_length),
            (at.bytes_start, row.bytes_start),
            (at.unicode_length, row.unicode_length),
            (at.unicode_state, row.unicode_state),
            (at.unicode_ascii, row.unicode_ascii),
        ] {
            write(place, offset.into());
        }
        write(place, value);
        let report = PythonSelfReport::read(&bytes)?;
        Some((report, row.as_reported(&report)))
    }

    #[test]
    fn what_3_13_says_of_its_threads_counts_and_of_its_objects_must_agree() {
        let at = DEBUG_3_13;
        let (same, offsets) = reported(at.free_threaded, 0).expect("a list");
        assert!(!same.is_free_threaded);
        assert_eq!(offsets, PythonOffsets::of(13));

        let (_, moved) = reported(at.thread_frame, 88).expect("a list");
        assert_eq!(moved.map(|moved| moved.thread_frame), Some(88));

        let (_, differs) = reported(at.code_lines, 88).expect("a list");
        assert_eq!(differs, None);

        let (free, _) = reported(at.free_threaded, 1).expect("a list");
        assert!(free.is_free_threaded);

        assert!(reported(0, 0).is_none());
        assert!(reported(at.frame_back, 1 << 40).is_none());
    }

    #[test]
    fn the_key_of_the_threads_moves_with_its_neighbours() {
        let row = PythonOffsets::of(13).expect("a row");
        let finalizing = u64::from(row.runtime_finalizing) + 16;
        let (_, moved) = reported(DEBUG_3_13.runtime_finalizing, finalizing).expect("a list");
        let moved = moved.map(|moved| moved.runtime_thread_key);
        assert_eq!(moved, Some(row.runtime_thread_key + 16));
    }
}
