//! Where each version of `CPython` keeps what the naming of objects reads, beyond the frames.
//! Asked of each version's own headers, as the table of `fdguard-wire` is; 64-bit little-endian
//! builds with the GIL.

use fdguard_wire::python::PythonOffsets;

/// Offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Of frames, strings and code.
    pub frames: PythonOffsets,
    /// `_PyRuntime.interpreters.main`.
    pub runtime_main: u64,
    /// The interpreter's list of threads.
    pub interpreter_threads: u64,
    /// `atexit.callbacks`, and after it their number; 0 where a module keeps them.
    pub interpreter_atexit: u64,
    /// `native_thread_id`; 0 if a thread does not keep it.
    pub thread_native: u64,
    /// `thread_id`, the address of the C library's own record of a thread, where there is no
    /// `native_thread_id`; otherwise 0.
    pub thread_record: u64,
    /// `dict` of a thread: its thread-local values.
    pub thread_dict: u64,
    /// `context` of a thread.
    pub thread_context: u64,
    /// `ht_cached_keys`.
    pub type_keys: u64,
    /// The size of a heap type: its members follow.
    pub type_size: u64,
    /// Where a table of values has its first.
    pub values: u64,
    /// `co_nlocals` or `co_nlocalsplus`.
    pub code_locals: u64,
    /// `co_varnames` or `co_localsplusnames`.
    pub code_names: u64,
    /// `co_cellvars` and `co_freevars`; 0 where they are among the names.
    pub code_cells: u64,
    /// See `code_cells`.
    pub code_free: u64,
    /// `co_stacksize`.
    pub code_stack: u64,
    /// `gi_frame_state`; 0 if it has none.
    pub generator_state: u64,
    /// `func_code`.
    pub function_code: u64,
    /// `func_qualname`.
    pub function_name: u64,
    /// `func_closure`.
    pub function_closure: u64,
}

/// Where the C library's record of a thread may have the kernel's number: in glibc, and in musl.
pub(crate) const RECORD_NUMBERS: [u64; 2] = [0x2d0, 0x30];
/// `next` of a thread, and `interp`.
pub(crate) const THREAD_NEXT: u64 = 8;
pub(crate) const THREAD_INTERPRETER: u64 = 16;
pub(crate) const TYPE_BASE: u64 = 256;
pub(crate) const TYPE_DICT: u64 = 264;
pub(crate) const TYPE_DICT_OFFSET: u64 = 288;
pub(crate) const TYPE_BASIC_SIZE: u64 = 32;
pub(crate) const DICT_USED: u64 = 16;
pub(crate) const DICT_KEYS: u64 = 32;
pub(crate) const DICT_VALUES: u64 = 40;
pub(crate) const SET_USED: u64 = 24;
/// `ob_size` of an object of variable size.
pub(crate) const SIZE: u64 = 16;
pub(crate) const METHOD_SELF: u64 = 24;
/// The class that a method in C belongs to, and its name.
pub(crate) const DESCRIPTOR_CLASS: u64 = 16;
pub(crate) const DESCRIPTOR_NAME: u64 = 24;
pub(crate) const CELL_VALUE: u64 = 16;
pub(crate) const TRACEBACK_LINE: u64 = 36;
pub(crate) const TRACEBACK_FRAME: u64 = 24;
pub(crate) const MODULE_DICT: u64 = 16;
/// `f_frame` of a frame object, from 3.11 on.
pub(crate) const FRAME_OBJECT_FRAME: u64 = 24;

/// The collector's part of an interpreter, from where its generations are.
pub const GENERATION: u64 = 24;
/// `generation0` points to the first one.
pub(crate) const GENERATION_0: u64 = 72;
/// `permanent_generation`.
pub const PERMANENT: u64 = 80;
/// `collecting`.
pub const COLLECTING: u64 = 176;
/// `enabled` is this far before.
pub(crate) const ENABLED: u64 = 12;

impl Layout {
    /// The layout of `3.minor`.
    #[must_use]
    pub fn of(minor: u16) -> Option<Self> {
        let frames = PythonOffsets::of(minor)?;
        Some(match minor {
            9 => Self::nine(frames),
            10 => Self::ten(frames),
            11 => Self::eleven(frames),
            12 => Self::twelve(frames),
            13 => Self::thirteen(frames),
            _ => return None,
        })
    }

    const fn nine(frames: PythonOffsets) -> Self {
        Self {
            frames,
            runtime_main: 40,
            interpreter_threads: 8,
            interpreter_atexit: 0,
            thread_native: 0,
            thread_record: 176,
            thread_dict: 152,
            thread_context: 240,
            type_keys: 864,
            type_size: 880,
            values: 0,
            code_locals: 28,
            code_names: 72,
            code_cells: 88,
            code_free: 80,
            code_stack: 32,
            generator_state: 0,
            function_code: 16,
            function_name: 104,
            function_closure: 48,
        }
    }

    const fn ten(frames: PythonOffsets) -> Self {
        Self {
            interpreter_atexit: 3488,
            type_keys: 872,
            type_size: 888,
            function_code: 48,
            function_name: 40,
            function_closure: 72,
            ..Self::nine(frames)
        }
    }

    const fn eleven(frames: PythonOffsets) -> Self {
        Self {
            runtime_main: 48,
            interpreter_threads: 16,
            interpreter_atexit: 3536,
            thread_native: 160,
            thread_record: 0,
            thread_dict: 128,
            thread_context: 224,
            type_size: 904,
            code_locals: 76,
            code_names: 96,
            code_cells: 0,
            code_free: 0,
            code_stack: 68,
            generator_state: 75,
            ..Self::ten(frames)
        }
    }

    const fn twelve(frames: PythonOffsets) -> Self {
        Self {
            interpreter_threads: 72,
            interpreter_atexit: 3944,
            thread_native: 144,
            thread_record: 0,
            thread_dict: 112,
            thread_context: 208,
            type_keys: 880,
            type_size: 920,
            code_locals: 72,
            code_stack: 64,
            generator_state: 67,
            ..Self::eleven(frames)
        }
    }

    const fn thirteen(frames: PythonOffsets) -> Self {
        Self {
            runtime_main: 640,
            interpreter_threads: 7344,
            interpreter_atexit: 10712,
            thread_native: 160,
            thread_record: 0,
            thread_dict: 128,
            type_size: 928,
            values: 8,
            ..Self::twelve(frames)
        }
    }

    /// `func_defaults`, two before the closure in every version.
    pub(crate) const fn function_defaults(&self) -> u64 {
        self.function_closure - 16
    }

    /// `func_kwdefaults`.
    pub(crate) const fn function_keyword_defaults(&self) -> u64 {
        self.function_closure - 8
    }

    /// `func_globals`.
    pub(crate) const fn function_globals(&self) -> u64 {
        if self.minor() == 9 { 24 } else { 16 }
    }

    /// `3.minor`.
    #[must_use]
    pub const fn minor(&self) -> u16 {
        self.frames.minor
    }
}
