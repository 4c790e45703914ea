//! Where an interpreter keeps what the walk reads: a row of the table, checked against what the
//! running interpreter reports about itself.

use super::memory::{Memory, Span};
use super::table::{DEBUG_3_13, TABLE};

/// Offsets in bytes, sizes, and the masks of a string's state. Fields that a version lacks are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offsets {
    /// The minor version: `3.minor`.
    pub(crate) minor: u16,
    pub(crate) object_type: u16,
    pub(crate) type_basic_size: u16,
    pub(crate) type_flags: u16,
    pub(crate) runtime_finalizing: u16,
    /// The size that `PyUnicode_Type` must have.
    pub(crate) unicode_size: u16,
    pub(crate) unicode_length: u16,
    pub(crate) unicode_state: u16,
    /// Where the characters of compact ASCII begin.
    pub(crate) unicode_ascii: u16,
    /// Where the characters of other compact strings begin.
    pub(crate) unicode_compact: u16,
    /// Where strings that are not compact keep the pointer to their characters.
    pub(crate) unicode_any: u16,
    pub(crate) state_kind: u16,
    pub(crate) state_is_compact: u16,
    pub(crate) state_is_ascii: u16,
    /// The size that `PyBytes_Type` must have.
    pub(crate) bytes_size: u16,
    pub(crate) bytes_length: u16,
    pub(crate) bytes_start: u16,
    pub(crate) code_filename: u16,
    pub(crate) code_first_line: u16,
    /// `co_lnotab` or `co_linetable`.
    pub(crate) code_lines: u16,
    /// `frame` up to 3.10, `cframe` in 3.11 and 3.12, then `current_frame`.
    pub(crate) thread_frame: u16,
    pub(crate) cframe_current: u16,
    /// The size that `PyFrame_Type` must have; it follows from the layout of frames.
    pub(crate) frame_size: u16,
    pub(crate) frame_code: u16,
    pub(crate) frame_back: u16,
    /// `f_lasti` up to 3.10, then a pointer into the code.
    pub(crate) frame_instruction: u16,
    pub(crate) frame_owner: u16,
    /// The size that `PyCode_Type` must have.
    pub(crate) code_size: u16,
    /// `co_name` up to 3.10, then `co_qualname`.
    pub(crate) code_name: u16,
    pub(crate) code_first_traceable: u16,
    /// Where the instructions begin, from 3.11 on.
    pub(crate) code_start: u16,
    /// `tp_name`, `tp_init` and `tp_alloc`.
    pub(crate) type_name: u16,
    pub(crate) type_init: u16,
    pub(crate) type_alloc: u16,
    pub(crate) tuple_length: u16,
    pub(crate) tuple_items: u16,
    /// The generator or coroutine of a frame, up to 3.10; later the owner shows whether it has one.
    pub(crate) frame_generator: u16,
    /// Where a frame's local variables begin: the arguments first.
    pub(crate) frame_locals: u16,
    /// A coroutine's pointer to its frame, up to 3.10; later the frame itself.
    pub(crate) generator_frame: u16,
}

impl Offsets {
    /// The row of `3.minor`.
    pub(crate) fn of(minor: u16) -> Option<Self> {
        TABLE.into_iter().find(|row| row.minor == minor)
    }

    /// Up to 3.10 frames are objects.
    pub(crate) const fn has_frame_objects(&self) -> bool {
        self.minor <= 10
    }

    /// In 3.11 and 3.12 the current frame is found through the C stack.
    pub(crate) const fn has_cframe(&self) -> bool {
        self.minor == 11 || self.minor == 12
    }

    /// From 3.13 on the interpreter lists its offsets.
    pub(crate) const fn has_debug_offsets(&self) -> bool {
        self.minor >= 13
    }

    /// How much of a frame is read.
    pub(crate) const fn frame_span(&self) -> u64 {
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
    pub(crate) fn as_told_by(self, told: &SelfReport) -> Option<Self> {
        let agreed = Self {
            runtime_finalizing: told.runtime_finalizing,
            thread_frame: told.thread_frame,
            frame_code: told.frame_code,
            frame_back: told.frame_back,
            frame_instruction: told.frame_instruction,
            frame_owner: told.frame_owner,
            ..self
        };
        (told.objects == Objects::of(&self)).then_some(agreed)
    }
}

/// The offsets of objects that both the table and `_Py_DebugOffsets` list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Objects([u16; 12]);

impl Objects {
    const fn of(row: &Offsets) -> Self {
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
pub(crate) struct DebugOffsets {
    pub(crate) version: u16,
    pub(crate) free_threaded: u16,
    pub(crate) runtime_finalizing: u16,
    pub(crate) thread_frame: u16,
    pub(crate) frame_code: u16,
    pub(crate) frame_back: u16,
    pub(crate) frame_instruction: u16,
    pub(crate) frame_owner: u16,
    pub(crate) code_filename: u16,
    pub(crate) code_name: u16,
    pub(crate) code_first_line: u16,
    pub(crate) code_lines: u16,
    pub(crate) code_start: u16,
    pub(crate) object_type: u16,
    pub(crate) type_flags: u16,
    pub(crate) bytes_length: u16,
    pub(crate) bytes_start: u16,
    pub(crate) unicode_length: u16,
    pub(crate) unicode_state: u16,
    pub(crate) unicode_ascii: u16,
}

/// How much of `_PyRuntime` is read for them.
pub(crate) const DEBUG_SPAN: u64 = 568;

/// What a running 3.13 reports about itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelfReport {
    pub(crate) version: u64,
    pub(crate) is_free_threaded: bool,
    runtime_finalizing: u16,
    thread_frame: u16,
    frame_code: u16,
    frame_back: u16,
    frame_instruction: u16,
    frame_owner: u16,
    objects: Objects,
}

impl SelfReport {
    /// Reads it from the start of `_PyRuntime`. `None` without the cookie, or with an invalid
    /// offset.
    pub(crate) fn read<M: Memory>(runtime: Span<M>) -> Option<Self> {
        let at = &DEBUG_3_13;
        let mut cookie = [0; 8];
        runtime.read(0, &mut cookie)?;
        if &cookie != b"xdebugpy" {
            return None;
        }
        let offset = |at: u16| u16::try_from(runtime.word(at)?).ok();
        Some(Self {
            version: runtime.word(at.version)?,
            is_free_threaded: runtime.word(at.free_threaded)? != 0,
            runtime_finalizing: offset(at.runtime_finalizing)?,
            thread_frame: offset(at.thread_frame)?,
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
