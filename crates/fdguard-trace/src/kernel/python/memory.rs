//! Code objects read from a process, in the form in which the kernel copies them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use fdguard_kernel::CapturedCode;

use super::code;
use super::process::PythonProcess;

/// The longest name and the largest table of lines that are read.
const TEXT_LIMIT: u64 = 1 << 16;
const TABLE_LIMIT: u64 = 16 << 20;

/// Reads the code object at an address. `None` if it is not one (any more).
pub(super) fn capture(pid: u32, address: u64, process: &PythonProcess) -> Option<CapturedCode> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let at = &process.image.offsets;
    let object = read(&memory, address, at.code_size.into())?;
    if !process.has_code(&object) {
        return None;
    }
    let pointer = |offset| code::word(&object, offset);
    let file = read_string(&memory, pointer(at.code_filename)?, process)?;
    let name = read_string(&memory, pointer(at.code_name)?, process)?;
    let lines = pointer(at.code_lines)?;
    let head = read(&memory, lines, at.bytes_start.into())?;
    let length = code::word(&head, at.bytes_length)?;
    let is_table = code::word(&head, at.object_type)? == process.bytes_type();
    if !is_table || length > TABLE_LIMIT {
        return None;
    }
    let lines = read(
        &memory,
        lines.checked_add(u64::from(at.bytes_start))?,
        length,
    )?;
    Some(CapturedCode {
        pid,
        minor: at.minor,
        code: address,
        identity: code::identity(&object, at)?,
        object,
        file,
        name,
        lines: Some(lines),
    })
}

fn read_string(memory: &File, address: u64, process: &PythonProcess) -> Option<Vec<u8>> {
    let at = &process.image.offsets;
    let head = read(memory, address, at.unicode_ascii.into())?;
    let is_string = code::word(&head, at.object_type)? == process.unicode_type();
    let size = code::string_size(&head, at).filter(|size| is_string && *size <= TEXT_LIMIT)?;
    read(memory, address, size)
}

fn read(memory: &File, address: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    memory.read_exact_at(&mut bytes, address).ok()?;
    Some(bytes)
}
