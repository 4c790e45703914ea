//! Where each CPython keeps what the walk reads. Written by `offsets.py`, by nothing else.
//!
//! 64-bit little-endian builds with the GIL and without reference tracing.

use super::offsets::{DebugOffsets, PythonOffsets};

const MINOR_9: PythonOffsets = PythonOffsets {
    minor: 9,
    object_type: 8,
    type_basic_size: 32,
    type_flags: 168,
    runtime_finalizing: 16,
    runtime_thread_key: 584,
    thread_id: 176,
    unicode_size: 80,
    unicode_length: 16,
    unicode_state: 32,
    unicode_ascii: 48,
    unicode_compact: 72,
    unicode_any: 72,
    state_kind: 28,
    state_is_compact: 32,
    state_is_ascii: 64,
    bytes_size: 33,
    bytes_length: 16,
    bytes_start: 32,
    code_filename: 104,
    code_first_line: 40,
    type_name: 24,
    type_init: 296,
    type_alloc: 304,
    tuple_length: 16,
    tuple_items: 24,
    code_lines: 120,
    thread_frame: 24,
    cframe_current: 0,
    frame_size: 368,
    frame_code: 32,
    frame_back: 24,
    frame_instruction: 104,
    frame_owner: 0,
    code_size: 176,
    code_name: 112,
    code_first_traceable: 0,
    code_start: 0,
    frame_generator: 96,
    frame_locals: 360,
    generator_frame: 16,
};
const MINOR_10: PythonOffsets = PythonOffsets {
    minor: 10,
    frame_size: 360,
    frame_instruction: 96,
    frame_generator: 88,
    frame_locals: 352,
    ..MINOR_9
};
const MINOR_11: PythonOffsets = PythonOffsets {
    minor: 11,
    runtime_finalizing: 24,
    runtime_thread_key: 592,
    thread_id: 152,
    code_filename: 112,
    code_first_line: 72,
    code_lines: 136,
    frame_size: 120,
    frame_back: 48,
    frame_owner: 69,
    code_size: 184,
    code_name: 128,
    code_first_traceable: 168,
    code_start: 184,
    frame_generator: 0,
    frame_locals: 72,
    generator_frame: 80,
    thread_frame: 56,
    cframe_current: 8,
    frame_instruction: 56,
    ..MINOR_10
};
const MINOR_12: PythonOffsets = PythonOffsets {
    minor: 12,
    runtime_thread_key: 1544,
    thread_id: 136,
    unicode_size: 64,
    unicode_ascii: 40,
    unicode_compact: 56,
    unicode_any: 56,
    code_first_line: 68,
    frame_back: 8,
    frame_owner: 70,
    code_size: 192,
    code_first_traceable: 176,
    code_start: 192,
    generator_frame: 72,
    cframe_current: 0,
    frame_code: 0,
    ..MINOR_11
};
const MINOR_13: PythonOffsets = PythonOffsets {
    minor: 13,
    runtime_finalizing: 608,
    runtime_thread_key: 2160,
    thread_id: 152,
    frame_size: 136,
    code_size: 200,
    code_first_traceable: 184,
    code_start: 200,
    thread_frame: 72,
    ..MINOR_12
};

/// One row a minor version, in their order.
pub(super) const TABLE: [PythonOffsets; 5] = [MINOR_9, MINOR_10, MINOR_11, MINOR_12, MINOR_13];

/// Where 3.13's `_Py_DebugOffsets` keeps each offset.
pub(super) const DEBUG_3_13: DebugOffsets = DebugOffsets {
    version: 8,
    free_threaded: 16,
    runtime_finalizing: 32,
    thread_frame: 184,
    thread_id: 192,
    frame_code: 240,
    frame_back: 232,
    frame_instruction: 248,
    frame_owner: 264,
    code_filename: 280,
    code_name: 296,
    code_first_line: 312,
    code_lines: 304,
    code_start: 344,
    object_type: 360,
    type_flags: 392,
    bytes_length: 520,
    bytes_start: 528,
    unicode_length: 552,
    unicode_state: 544,
    unicode_ascii: 560,
};
