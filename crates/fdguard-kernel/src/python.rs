//! Where an interpreter keeps what the walk of Python frames reads.

/// A `CPython`, as `bpf/python.bpf.h` needs it. Offsets are in bytes; those that a version lacks
/// are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonLayout {
    /// The address of `_PyRuntime`: in a process, or in a file.
    pub runtime: u64,
    /// The address of `PyCode_Type`, likewise.
    pub code_type: u64,
    /// The address of the file's executable segment, by whole pages.
    pub segment_address: u64,
    /// The offset of this segment in the file.
    pub segment_offset: u64,
    /// The offsets, in the order of the programs.
    pub offsets: PythonLayoutOffsets,
}

/// The offsets of a [`PythonLayout`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in `fdguard_wire::PythonOffsets`")]
pub struct PythonLayoutOffsets {
    pub minor: u16,
    pub runtime_finalizing: u16,
    pub runtime_thread_key: u16,
    pub thread_frame: u16,
    pub thread_id: u16,
    pub cframe_current: u16,
    pub frame_span: u16,
    pub frame_code: u16,
    pub frame_back: u16,
    pub frame_instruction: u16,
    pub frame_owner: u16,
    pub object_type: u16,
    pub code_size: u16,
    pub code_filename: u16,
    pub code_name: u16,
    pub code_first_line: u16,
    pub code_first_traceable: u16,
    pub code_start: u16,
    pub code_lines: u16,
    pub unicode_length: u16,
    pub unicode_state: u16,
    pub unicode_ascii: u16,
    pub unicode_compact: u16,
    pub state_kind_shift: u16,
    pub state_is_compact: u16,
    pub state_is_ascii: u16,
    pub bytes_length: u16,
    pub bytes_start: u16,
}

impl PythonLayout {
    /// The size of `struct python_layout`.
    pub(crate) const SIZE: usize = 4 * 8 + 28 * 2;

    /// The layout of an interpreter whose file was loaded this far from its own addresses.
    #[must_use]
    pub fn loaded(self, bias: u64) -> Self {
        Self {
            runtime: self.runtime.wrapping_add(bias),
            code_type: self.code_type.wrapping_add(bias),
            ..self
        }
    }

    /// As `struct python_layout`.
    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        let at = self.offsets;
        let words = [
            self.runtime,
            self.code_type,
            self.segment_address,
            self.segment_offset,
        ];
        let halves = [
            at.minor,
            at.runtime_finalizing,
            at.runtime_thread_key,
            at.thread_frame,
            at.thread_id,
            at.cframe_current,
            at.frame_span,
            at.frame_code,
            at.frame_back,
            at.frame_instruction,
            at.frame_owner,
            at.object_type,
            at.code_size,
            at.code_filename,
            at.code_name,
            at.code_first_line,
            at.code_first_traceable,
            at.code_start,
            at.code_lines,
            at.unicode_length,
            at.unicode_state,
            at.unicode_ascii,
            at.unicode_compact,
            at.state_kind_shift,
            at.state_is_compact,
            at.state_is_ascii,
            at.bytes_length,
            at.bytes_start,
        ];
        let words = words.into_iter().flat_map(u64::to_le_bytes);
        let halves = halves.into_iter().flat_map(u16::to_le_bytes);
        let mut bytes = [0; Self::SIZE];
        for (place, byte) in bytes.iter_mut().zip(words.chain(halves)) {
            *place = byte;
        }
        bytes
    }
}
