//! The walk as a library that Python loads by ctypes. See `cases.py`.
#![expect(unsafe_code, reason = "called by ctypes")]

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[path = "../../src/python/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library uses more of it")]
mod python;
mod reader;

use fdguard_wire::python::PythonRefusal;
use python::{RawFrame, Runtime};
use reader::Stack;

const DEPTH: usize = 64;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn process_vm_readv(
        pid: c_int,
        local: *const Iovec,
        locals: u64,
        remote: *const Iovec,
        remotes: u64,
        flags: u64,
    ) -> isize;
}

#[repr(C)]
struct Iovec {
    base: *mut c_void,
    length: usize,
}

fn runtime() -> &'static Result<Runtime, PythonRefusal> {
    static RUNTIME: OnceLock<Result<Runtime, PythonRefusal>> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let search = |name: &CStr| {
            // SAFETY: RTLD_DEFAULT and a C string.
            unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) }.cast_const()
        };
        // SAFETY: dlsym itself; the interpreter is not unloaded.
        unsafe { Runtime::find(search) }
    })
}

/// The number of the refusal, 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn fdguard_refusal() -> c_int {
    runtime()
        .as_ref()
        .map_or_else(|refusal| *refusal as c_int, |_| 0)
}

/// `Py_Version`.
#[unsafe(no_mangle)]
pub extern "C" fn fdguard_version() -> c_long {
    runtime().as_ref().map_or(0, |found| found.version().into())
}

/// Walks, renders, reads the record again and writes what was read: `flags NUL` and for each frame
/// `file NUL function NUL line NUL first line NUL`. Returns the length, or a negative number: the
/// refusal, -100 for no Python in this thread, -101 for a record that cannot be read, -102 for no
/// room.
///
/// # Safety
///
/// `out` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdguard_walk_test(
    out: *mut u8,
    room: usize,
    depth: usize,
    arena: usize,
) -> isize {
    let found = match runtime() {
        Ok(found) => found,
        Err(refusal) => return -(*refusal as isize),
    };
    let mut frames = [RawFrame::default(); DEPTH];
    let mut record = [0; 1 << 17];
    let Some(walked) = found.walk(&mut frames[..depth.min(DEPTH)]) else {
        return -100;
    };
    let arena = arena.min(record.len());
    let length = found.render(&frames, &walked, &mut record[..arena]);
    let Some((stack, [])) = Stack::read(&record[..length]) else {
        return -101;
    };
    let text = describe(&stack);
    if text.len() > room {
        return -102;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), out, text.len()) };
    text.len() as isize
}

fn describe(stack: &Stack<'_>) -> Vec<u8> {
    let flags = [stack.is_truncated, stack.is_broken, stack.is_short_of_room];
    let mut text: Vec<u8> = flags.map(|flag| if flag { b'1' } else { b'0' }).into();
    text.push(0);
    for frame in &stack.frames {
        let number = |line: Option<NonZeroU32>| line.map_or(0, NonZeroU32::get);
        text.extend(frame.file.unwrap_or(b"?"));
        text.push(0);
        text.extend(frame.function.unwrap_or(b"?"));
        text.extend(format!("\0{}\0{}\0", number(frame.line), number(frame.first_line)).bytes());
    }
    text
}

/// The hash of the calling thread's stack; 0 if a glance and a walk disagree.
#[unsafe(no_mangle)]
pub extern "C" fn fdguard_hash() -> u64 {
    let Ok(found) = runtime() else { return 0 };
    let mut frames = [RawFrame::default(); DEPTH];
    let walked = found.walk(&mut frames);
    let is_same = [false, true].map(|is_whole| found.glance(DEPTH, is_whole, |_| ()) == walked);
    walked
        .filter(|_| is_same == [true, true])
        .map_or(0, |walked| walked.hash)
}

static ON_SIGNAL: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// A signal handler in C that walks wherever the signal arrives.
#[unsafe(no_mangle)]
pub extern "C" fn fdguard_on_signal(_signal: c_int) {
    let mut frames = [RawFrame::default(); DEPTH];
    let walked = runtime()
        .as_ref()
        .ok()
        .and_then(|found| found.walk(&mut frames));
    let kind = walked.map_or(2, |walked| usize::from(walked.is_broken));
    ON_SIGNAL[kind].fetch_add(1, Ordering::Relaxed);
}

/// How many walks succeeded (0), ended early (1), found no Python (2).
#[unsafe(no_mangle)]
pub extern "C" fn fdguard_signals(kind: c_int) -> u64 {
    let counter = usize::try_from(kind)
        .ok()
        .and_then(|kind| ON_SIGNAL.get(kind));
    counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
}

/// Nanoseconds for `times` repetitions: 0 walks, 1 walks and renderings, 2 single reads by
/// `process_vm_readv`.
#[unsafe(no_mangle)]
pub extern "C" fn fdguard_cost(what: c_int, times: u64) -> u64 {
    let Ok(found) = runtime() else { return 0 };
    let mut frames = [RawFrame::default(); DEPTH];
    let mut record = vec![0; 1 << 17];
    let begin = Instant::now();
    let mut sum = 0;
    for _ in 0..times {
        if what == 2 {
            sum ^= read_by_kernel();
            continue;
        }
        let Some(walked) = found.walk(&mut frames) else {
            return 0;
        };
        sum ^= walked.hash;
        if what == 1 {
            sum ^= found.render(&frames, &walked, &mut record) as u64;
        }
    }
    std::hint::black_box(sum);
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn read_by_kernel() -> u64 {
    let (mut from, mut to) = ([7_u8; 72], [0_u8; 72]);
    let local = Iovec {
        base: to.as_mut_ptr().cast(),
        length: 72,
    };
    let remote = Iovec {
        base: from.as_mut_ptr().cast(),
        length: 72,
    };
    let pid = std::process::id().cast_signed();
    // SAFETY: both ranges are arrays of this function.
    let read = unsafe { process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    u64::from(to[0]) ^ read.cast_unsigned() as u64
}
