//! Frames: those of threads, of generators and of frame objects, with their local variables.

use fdguard_wire::python::LineFormat;

use crate::layout::{FRAME_OBJECT_FRAME, RECORD_NUMBERS, THREAD_INTERPRETER, THREAD_NEXT};
use crate::memory::Reader;

const MOST_THREADS: usize = 4096;
const MOST_FRAMES: usize = 2048;
/// The most local variables, and the largest stack of values.
const MOST_LOCALS: u64 = 4096;
const MOST_LINES: u64 = 1 << 20;
/// `FRAME_OWNED_BY_CSTACK`.
const OWNED_BY_C: u8 = 3;

/// A function that runs, or waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameName {
    /// The function, qualified from 3.11 on.
    pub function: String,
    /// Its file.
    pub file: String,
    /// The line that it is at.
    pub line: Option<u32>,
}

/// A frame of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadFrame {
    pub(crate) frame: u64,
    /// The kernel's number of the thread; 0 if it is not known.
    pub(crate) thread: u64,
}

/// A value that a frame has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    pub(crate) frame: ThreadFrame,
    /// Its place; from the number of variables on it is on the stack of values.
    pub(crate) slot: u64,
    pub(crate) value: u64,
}

/// The interpreter's threads.
pub(crate) fn threads(reader: &Reader<'_>, interpreter: u64) -> Vec<u64> {
    let mut threads = Vec::new();
    let mut next = reader.field(interpreter, reader.at.interpreter_threads);
    while let Some(thread) = next.filter(|next| *next != 0) {
        let is_ours = reader.field(thread, THREAD_INTERPRETER) == Some(interpreter);
        if !is_ours || threads.len() >= MOST_THREADS {
            break;
        }
        threads.push(thread);
        next = reader.field(thread, THREAD_NEXT);
    }
    threads
}

/// The kernel's number of a thread; 0 if it is not known. Before Python 3.11 only the C library has
/// it, in a record that begins with its own address; what is found there must be one of `tasks`.
fn native(reader: &Reader<'_>, thread: u64, tasks: &[u64]) -> u64 {
    let field = |offset| reader.field(thread, offset).unwrap_or(0);
    if reader.at.thread_record == 0 {
        return field(reader.at.thread_native);
    }
    let record = field(reader.at.thread_record);
    if record == 0 || reader.field(record, 0) != Some(record) {
        return 0;
    }
    let numbers = RECORD_NUMBERS.iter().filter_map(|offset| {
        let number = reader.int(record, *offset)?;
        u64::try_from(number).ok()
    });
    let mut known = numbers.filter(|number| tasks.contains(number));
    known.next().unwrap_or(0)
}

/// The frames of a thread, innermost first. `tasks` are the kernel's numbers of all threads.
pub(crate) fn frames(reader: &Reader<'_>, thread: u64, tasks: &[u64]) -> Vec<ThreadFrame> {
    let at = &reader.at.frames;
    let native = native(reader, thread, tasks);
    let pointer = reader.field(thread, at.thread_frame.into());
    let mut next = match at.has_cframe() {
        true => pointer.and_then(|cframe| reader.field(cframe, at.cframe_current.into())),
        false => pointer,
    };
    let mut frames = Vec::new();
    while let Some(frame) = next.filter(|next| *next != 0) {
        if frames.len() >= MOST_FRAMES {
            break;
        }
        let is_c = !at.has_frame_objects()
            && reader
                .byte(frame, at.frame_owner.into())
                .unwrap_or(OWNED_BY_C)
                == OWNED_BY_C;
        if !is_c {
            frames.push(ThreadFrame {
                frame,
                thread: native,
            });
        }
        next = reader.field(frame, at.frame_back.into());
    }
    frames
}

/// The values of a frame: variables first, then what may be on its stack.
pub(crate) fn locals(reader: &Reader<'_>, frame: ThreadFrame) -> Vec<Local> {
    let mut locals = Vec::new();
    let Some(code) = code(reader, frame.frame) else {
        return locals;
    };
    let variables = variables(reader, code).unwrap_or(0);
    let stack = reader.int(code, reader.at.code_stack).unwrap_or(0);
    let stack = u64::from(stack.max(0).cast_unsigned()).min(MOST_LOCALS);
    let first = frame
        .frame
        .wrapping_add(reader.at.frames.frame_locals.into());
    let count = usize::try_from(variables + stack).unwrap_or(0);
    let words = reader.words(first, count);
    let words = words.or_else(|| reader.words(first, usize::try_from(variables).ok()?));
    for (slot, value) in (0..).zip(words.unwrap_or_default()) {
        if value != 0 && value % 8 == 0 {
            locals.push(Local { frame, slot, value });
        }
    }
    locals
}

/// The code of a frame, if it has one.
pub(crate) fn code(reader: &Reader<'_>, frame: u64) -> Option<u64> {
    let code = reader.pointer(frame, reader.at.frames.frame_code.into())?;
    is_code(reader, code).then_some(code)
}

fn is_code(reader: &Reader<'_>, code: u64) -> bool {
    let name = || {
        let kind = reader.kind(code)?;
        reader.c_string(reader.pointer(kind, reader.at.frames.type_name.into())?)
    };
    name().as_deref() == Some("code")
}

/// How many variables a code has, cells included.
fn variables(reader: &Reader<'_>, code: u64) -> Option<u64> {
    let count = reader.int(code, reader.at.code_locals)?;
    let mut count = u64::from(count.max(0).cast_unsigned());
    for names in [reader.at.code_cells, reader.at.code_free] {
        if names != 0 {
            count += tuple_length(reader, reader.pointer(code, names)?)?;
        }
    }
    Some(count.min(MOST_LOCALS))
}

fn tuple_length(reader: &Reader<'_>, tuple: u64) -> Option<u64> {
    let length = reader.field(tuple, reader.at.frames.tuple_length.into())?;
    (length <= MOST_LOCALS).then_some(length)
}

fn tuple_item(reader: &Reader<'_>, tuple: u64, index: u64) -> Option<u64> {
    let first = u64::from(reader.at.frames.tuple_items);
    reader.pointer(tuple, first.checked_add(index.checked_mul(8)?)?)
}

/// The name of a variable; `None` for a value that has none.
pub(crate) fn variable_name(reader: &Reader<'_>, frame: u64, slot: u64) -> Option<String> {
    let code = code(reader, frame)?;
    let mut slot = slot;
    for names in [
        reader.at.code_names,
        reader.at.code_cells,
        reader.at.code_free,
    ] {
        if names == 0 {
            continue;
        }
        let names = reader.pointer(code, names)?;
        let length = tuple_length(reader, names)?;
        if slot < length {
            return reader.text(tuple_item(reader, names, slot)?);
        }
        slot -= length;
    }
    None
}

/// The variable of a frame that has this value, with its place.
pub(crate) fn variable_of(reader: &Reader<'_>, frame: u64, value: u64) -> Option<String> {
    let code = code(reader, frame)?;
    let count = usize::try_from(variables(reader, code)?).ok()?;
    let first = frame.checked_add(reader.at.frames.frame_locals.into())?;
    let words = reader.words(first, count)?;
    let slot = words.iter().position(|word| *word == value)?;
    variable_name(reader, frame, slot as u64)
}

/// What runs in a frame.
pub(crate) fn name(reader: &Reader<'_>, frame: u64) -> Option<FrameName> {
    let at = &reader.at.frames;
    let code = code(reader, frame)?;
    let (function, file) = code_name(reader, code)?;
    let offset = if at.has_frame_objects() {
        let last = reader.int(frame, at.frame_instruction.into())?;
        last.checked_mul(if at.minor == 10 { 2 } else { 1 })?
    } else {
        let start = code.checked_add(at.code_start.into())?;
        let now = reader.field(frame, at.frame_instruction.into())?;
        i32::try_from(now.wrapping_sub(start).cast_signed()).ok()?
    };
    let line = line(reader, code, offset);
    Some(FrameName {
        function,
        file,
        line,
    })
}

/// The function and the file of a code.
pub(crate) fn code_name(reader: &Reader<'_>, code: u64) -> Option<(String, String)> {
    let at = &reader.at.frames;
    let function = reader.text(reader.pointer(code, at.code_name.into())?)?;
    let file = reader.text(reader.pointer(code, at.code_filename.into())?)?;
    Some((function, file))
}

fn line(reader: &Reader<'_>, code: u64, offset: i32) -> Option<u32> {
    let at = &reader.at.frames;
    let table = reader.pointer(code, at.code_lines.into())?;
    let length = reader.field(table, at.bytes_length.into())?;
    if length > MOST_LINES {
        return None;
    }
    let start = table.checked_add(at.bytes_start.into())?;
    let bytes = reader.block(start, usize::try_from(length).ok()?)?;
    let first = reader.int(code, at.code_first_line.into())?;
    let first = u32::try_from(first).ok()?;
    LineFormat::of(at.minor).line_at(bytes.into_iter(), first, offset)
}

/// The frame of a frame object.
pub(crate) fn of_object(reader: &Reader<'_>, object: u64) -> Option<u64> {
    match reader.at.frames.has_frame_objects() {
        true => Some(object),
        false => reader.pointer(object, FRAME_OBJECT_FRAME),
    }
}

/// The frame of a generator or coroutine.
pub(crate) fn of_generator(reader: &Reader<'_>, object: u64) -> Option<u64> {
    let at = &reader.at.frames;
    match at.has_frame_objects() {
        true => reader.pointer(object, at.generator_frame.into()),
        false => object.checked_add(at.generator_frame.into()),
    }
}
