//! A few words of thread-local memory.
//!
//! Rust's thread-local variables need the standard library, and the general access model calls a
//! function of the loader that may allocate. These words are declared in assembly with the
//! initial-exec model, which an object loaded with the program may use: one offset, no call.

#![expect(
    unsafe_code,
    reason = "thread-local memory without the standard library"
)]

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss.fdguard_thread,\"awT\",@nobits",
    ".balign 8",
    ".type fdguard_thread,@object",
    ".size fdguard_thread,40",
    ".hidden fdguard_thread",
    ".globl fdguard_thread",
    "fdguard_thread:",
    ".zero 40",
    ".popsection",
);

/// The words of a thread. All zeros at first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Thread {
    /// The stack address at which the recorder is active, 0 if it is not.
    pub(crate) busy: usize,
    /// The thread's id, 0 until it was queried.
    pub(crate) tid: usize,
    /// The top of the thread's stack, 0 until it is known.
    pub(crate) top: usize,
    /// Everything from here up to `top` is known to be readable.
    pub(crate) low: usize,
    /// How many of this thread's `vfork` calls have not returned in the parent.
    pub(crate) vforks: usize,
}

/// Set in that count if the thread has a descriptor table of its own. It is above every count, so
/// one load tells that nothing is unusual.
const APART: usize = 1 << 32;

/// The offset of that count in the words, for code without a stack frame.
pub(crate) const VFORKS: usize = core::mem::offset_of!(Thread, vforks);

/// The address of the calling thread's words.
fn words() -> *mut Thread {
    let place: usize;
    // SAFETY: reads the offset that the loader wrote, and the thread pointer; both exist once this
    // code runs.
    unsafe {
        asm!(
            "mov {place}, qword ptr [rip + fdguard_thread@GOTTPOFF]",
            "add {place}, qword ptr fs:[0]",
            place = out(reg) place,
            options(pure, readonly, nostack),
        );
    }
    place as *mut Thread
}

/// The thread pointer: in a thread of the C library it is above the stack.
pub(crate) fn pointer() -> usize {
    let pointer: usize;
    // SAFETY: the first word at the thread pointer is its own address, by the x86-64 ABI.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack));
    }
    pointer
}

/// Reads one of the words.
fn load(field: *mut usize) -> usize {
    // SAFETY: a word of this thread; volatile, because signal handlers of the same thread may
    // change it in between.
    unsafe { field.read_volatile() }
}

fn store(field: *mut usize, value: usize) {
    // SAFETY: as in `load`.
    unsafe { field.write_volatile(value) };
}

fn busy() -> *mut usize {
    // SAFETY: takes the address of a field; nothing is read.
    unsafe { &raw mut (*words()).busy }
}

fn number() -> *mut usize {
    // SAFETY: as in `busy`.
    unsafe { &raw mut (*words()).tid }
}

fn top() -> *mut usize {
    // SAFETY: as in `busy`.
    unsafe { &raw mut (*words()).top }
}

fn low() -> *mut usize {
    // SAFETY: as in `busy`.
    unsafe { &raw mut (*words()).low }
}

fn waiting() -> *mut usize {
    // SAFETY: as in `busy`.
    unsafe { &raw mut (*words()).vforks }
}

/// How many `vfork` children may be running in this thread's place.
#[inline]
pub(crate) fn vforks() -> usize {
    load(waiting())
}

/// Whether this thread has a descriptor table of its own, apart from its process.
pub(crate) fn is_apart() -> bool {
    vforks() & APART != 0
}

/// This thread has a table of its own from here on.
pub(crate) fn leave_table() {
    store(waiting(), vforks() | APART);
}

/// Enters the recorder at this stack address; false if this thread is already in it, further out.
///
/// A handler that left the recorder with `longjmp` also left its mark. The mark is then below the
/// current stack pointer, where no caller can be, and does not count. (On another stack the
/// comparison means nothing. The worst result is a record inside a record, which the mapping
/// tolerates.)
pub(crate) fn enter(place: usize) -> bool {
    let field = busy();
    let by = load(field);
    if by != 0 && by > place {
        return false;
    }
    store(field, place);
    true
}

/// Leaves the recorder.
pub(crate) fn leave() {
    store(busy(), 0);
}

/// The thread's id.
pub(crate) fn tid() -> u32 {
    let field = number();
    let known = load(field);
    if known != 0 {
        return u32::try_from(known).unwrap_or(0);
    }
    let tid = crate::sys::thread();
    store(field, tid as usize);
    tid
}

/// Forgets the id: a forked child has another one.
pub(crate) fn forget() {
    store(number(), 0);
    store(busy(), 0);
    store(waiting(), 0);
}

/// The part of the thread's own stack that is known to be readable.
pub(crate) fn stack() -> (usize, usize) {
    (load(low()), load(top()))
}

/// Remembers this range.
pub(crate) fn know_stack(from: usize, to: usize) {
    // At no moment is the stored range larger than both.
    store(top(), 0);
    store(low(), from);
    store(top(), to);
}
