//! Where an interpreter keeps what the walk of Python frames reads, and what the walk reports.

use std::io;

use crate::{CapturedCode, KernelTracer, StackMode};

/// The kind of a code record in the ring of stacks.
const CODE: u32 = 4;
/// Where the parts of a code record begin, and its table of lines.
const OBJECT: usize = 40;
const FILE: usize = OBJECT + 256;
const NAME: usize = FILE + 2048;
const LINES: usize = NAME + 1024;
/// The size of a table that was not copied.
const NOT_COPIED: u64 = 16384;

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
    pub(crate) const SIZE: usize = 4 * 8 + 28 * 2 + 8;

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

impl KernelTracer {
    /// From now on the Python frames of this process are walked, which has this interpreter.
    pub fn set_python(&self, pid: u32, layout: &PythonLayout) -> io::Result<()> {
        let processes = self.object.map("python_processes")?;
        processes.update(&pid.to_ne_bytes(), &layout.to_bytes())?;
        self.follow(pid, StackMode::Python)
    }

    /// From now on every followed process that maps this file is known to run this interpreter. The
    /// device is the kernel's number, as `stat` reports it.
    pub fn add_python_file(
        &self,
        device: u64,
        inode: u64,
        layout: &PythonLayout,
    ) -> io::Result<()> {
        let major = u64::from(rustix::fs::major(device));
        let device = major << 20 | u64::from(rustix::fs::minor(device));
        let mut key = [0; 16];
        key[..8].copy_from_slice(&inode.to_ne_bytes());
        key[8..].copy_from_slice(&device.to_ne_bytes());
        let files = self.object.map("python_files")?;
        Ok(files.update(&key, &layout.to_bytes())?)
    }
}

/// Reads a record of the ring of stacks; `None` if it is a stack.
pub(crate) fn decode(record: &[u8]) -> Option<CapturedCode> {
    if word(record, 12)? != CODE {
        return None;
    }
    let part = |from: usize, to: usize| Some(record.get(from..to)?.to_vec());
    let lines = match long(record, 32)? {
        NOT_COPIED => None,
        size => Some(part(
            LINES,
            LINES.checked_add(usize::try_from(size).ok()?)?,
        )?),
    };
    Some(CapturedCode {
        pid: word(record, 4)?,
        minor: u16::try_from(word(record, 0)?).ok()?,
        code: long(record, 16)?,
        identity: long(record, 24)?,
        object: part(OBJECT, FILE)?,
        file: part(FILE, NAME)?,
        name: part(NAME, LINES)?,
        lines,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}
