//! Processes that share memory with their parent: `vfork`, and `clone` with `CLONE_VM`. The library
//! notes them before they exist, because nothing in the shared memory can distinguish them
//! afterwards.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::real::Real;
use crate::{children, errno, modules, owner, thread};

pub(crate) const CLONE_VM: u32 = 0x100;
const CLONE_THREAD: u32 = 0x1_0000;

type Function = unsafe extern "C" fn();
// SAFETY: only its address is used, to jump to.
static VFORK: Real<Function> = unsafe { Real::new(c"vfork") };
// SAFETY: only its address is used, to jump to.
static CLONE: Real<Function> = unsafe { Real::new(c"clone") };
// SAFETY: only its address is used, to compare.
static LIBRARY: Real<Function> = unsafe { Real::new(c"__register_atfork") };
// SAFETY: only whether it is there is asked.
static SINCE_2_35: Real<Function> = unsafe { Real::new(c"_dl_find_object") };

type Clone = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> c_int;
// SAFETY: the type of its manual page, words for all that is passed in a register or on the stack.
static CLONE_CALL: Real<Clone> = unsafe { Real::new(c"clone") };

/// The real functions for code that has no stack frame; null until they are known.
static REAL_VFORK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static REAL_CLONE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// Whether `vfork` is the C library's, and one that is only the system call.
static IS_PLAIN: AtomicU64 = AtomicU64::new(0);

/// Looks the real functions up.
pub(crate) extern "C" fn find() {
    let _ = CLONE_CALL.get();
    if let Some(real) = CLONE.get() {
        REAL_CLONE.store(real as *mut c_void, Ordering::Relaxed);
    }
    let Some(real) = VFORK.get() else {
        return;
    };
    // Before 2.25 the C library's changed what it knew of the process; another interposer's does
    // what it likes.
    let is_plain = SINCE_2_35.get().is_some()
        && LIBRARY
            .get()
            .is_some_and(|library| modules::is_one(library as usize, real as usize));
    IS_PLAIN.store(u64::from(is_plain), Ordering::Relaxed);
    REAL_VFORK.store(real as *mut c_void, Ordering::Relaxed);
}

/// `find` for code without a stack frame: keeps all registers that carry arguments.
// SAFETY: a plain function in assembly. It is called first thing, with two return addresses on an
// aligned stack: after six more words it is aligned again for the call; what it pushes it pops.
#[unsafe(naked)]
unsafe extern "C" fn find_for_asm() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "call {find}",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "ret",
        find = sym find,
    );
}

/// The thread's count of children in its place is raised before the call and lowered when the call
/// comes back to who made it, which is after the child has gone: so it is not 0 in the child, and
/// in no handler of a signal in between is it lowered. That needs code after the call, and the
/// child has overwritten the stack by then: as in the C library the way back is kept in a register,
/// and the system call made here. Where that is not all that the real one does, it is called, and
/// the kernel asked from then on; its child is not told. The parent leaves by a jump to what tells
/// of the child: the stack is as it was when we were called.
// SAFETY: the name is interposed on purpose; registers are used as the C library's own does.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn vfork() -> c_int {
    naked_asm!(
        "cmp qword ptr [rip + {real}], 0",
        "jne 2f",
        "call {find}",
        "2:",
        "cmp qword ptr [rip + {is_plain}], 0",
        "je 4f",
        "mov rcx, qword ptr [rip + fdguard_thread@GOTTPOFF]",
        "inc qword ptr fs:[rcx + {vforks}]",
        "pop rdi",
        "mov eax, 58",
        "syscall",
        "push rdi",
        "test eax, eax",
        "jz 3f",
        "mov rcx, qword ptr [rip + fdguard_thread@GOTTPOFF]",
        "dec qword ptr fs:[rcx + {vforks}]",
        "cmp eax, -4095",
        "jae 5f",
        "mov edi, eax",
        "jmp {started}",
        "3:",
        "ret",
        "4:",
        "mov qword ptr [rip + {alone} + 8], 1",
        "mov qword ptr [rip + {alone}], 0",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz 6f",
        "jmp rax",
        "5:",
        "mov edi, eax",
        "neg edi",
        "jmp {failed}",
        "6:",
        "jmp {missing}",
        real = sym REAL_VFORK,
        find = sym find_for_asm,
        is_plain = sym IS_PLAIN,
        vforks = const thread::VFORKS,
        alone = sym owner::ALONE,
        started = sym started,
        failed = sym failed,
        missing = sym missing,
    );
}

/// Its older name.
// SAFETY: the name is interposed on purpose; a jump changes nothing.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn __vfork() -> c_int {
    naked_asm!("jmp {vfork}", vfork = sym vfork)
}

/// A child in our memory that is not a thread of ours may outlive the call, on a stack of its own:
/// the kernel is asked from then on. Threads leave by a jump; who makes a process comes back, the
/// child on its own stack does not.
// SAFETY: the name is interposed on purpose. The code changes rax alone, which carries no argument,
// and leaves by a jump.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn clone() -> c_int {
    naked_asm!(
        "mov eax, edx",
        "and eax, {both}",
        "cmp eax, {in_our_memory}",
        "jne 2f",
        "mov qword ptr [rip + {alone} + 8], 1",
        "mov qword ptr [rip + {alone}], 0",
        "2:",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jnz 3f",
        "call {find}",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz 4f",
        "3:",
        "test edx, {thread}",
        "jz {process}",
        "jmp rax",
        "4:",
        "jmp {missing}",
        both = const CLONE_VM | CLONE_THREAD,
        in_our_memory = const CLONE_VM,
        thread = const CLONE_THREAD,
        alone = sym owner::ALONE,
        real = sym REAL_CLONE,
        find = sym find_for_asm,
        process = sym clone_process,
        missing = sym missing,
    );
}

/// Makes a process that begins in a function, on a stack that the caller gives. With all arguments
/// that `clone` can have, which x86-64 passes alike: those that the caller did not give the real
/// one does not read either.
unsafe extern "C" fn clone_process(
    function: usize,
    stack: usize,
    flags: usize,
    argument: usize,
    parent: usize,
    local: usize,
    child: usize,
) -> c_int {
    let Some(real) = CLONE_CALL.get() else {
        return super::missing();
    };
    // SAFETY: the caller's own arguments.
    started(unsafe { real(function, stack, flags, argument, parent, local, child) })
}

/// Its other name.
// SAFETY: the name is interposed on purpose; a jump changes nothing.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn __clone() -> c_int {
    naked_asm!("jmp {clone}", clone = sym clone)
}

/// A child came of it; gives its number on.
extern "C" fn started(pid: c_int) -> c_int {
    children::started(pid)
}

/// No child came of it.
extern "C" fn failed(error: c_int) -> c_int {
    errno::store(error);
    -1
}

extern "C" fn missing() -> c_int {
    super::missing()
}
