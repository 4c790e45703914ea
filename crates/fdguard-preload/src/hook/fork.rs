//! Processes that share memory with their parent: `vfork`, and `clone` with `CLONE_VM`. The library
//! notes them before they exist, because nothing in the shared memory can distinguish them
//! afterwards.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::preserves_arguments;
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
// SAFETY: only used to check whether it exists.
static SINCE_2_35: Real<Function> = unsafe { Real::new(c"_dl_find_object") };

type Clone = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> c_int;
// SAFETY: the type matches the manual page, with a word for everything passed in a register or on
// the stack.
static CLONE_CALL: Real<Clone> = unsafe { Real::new(c"clone") };

/// The real functions for code without a stack frame; null until they are known.
static REAL_VFORK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static REAL_CLONE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// Whether `vfork` is the C library's and does nothing but the system call.
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
    // Before 2.25 the C library's `vfork` changed its own process state; another interposer's may
    // do anything.
    let is_plain = SINCE_2_35.get().is_some()
        && LIBRARY
            .get()
            .is_some_and(|library| modules::is_one(library as usize, real as usize));
    IS_PLAIN.store(u64::from(is_plain), Ordering::Relaxed);
    REAL_VFORK.store(real as *mut c_void, Ordering::Relaxed);
}

preserves_arguments! {
    /// `find` for code without a stack frame.
    fn find_for_asm() calls find
}

/// Counts the children that run in this thread's place. The count is raised before the call and
/// lowered when the call returns in the parent, after the child has exited or called exec. So it is
/// not 0 in the child, and no signal handler in between lowers it. This needs code after the call,
/// when the child has overwritten the stack: as in the C library, the return address is kept in a
/// register and the system call is made here. If the real function does more than that, it is
/// called instead, and the kernel is asked from then on; its child is not reported. The parent
/// leaves by a jump to the function that reports the child: the stack is as it was on entry.
// SAFETY: interposed on purpose; registers are used as in the C library's own function.
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
// SAFETY: interposed on purpose; a jump changes nothing.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn __vfork() -> c_int {
    naked_asm!("jmp {vfork}", vfork = sym vfork)
}

/// A child in this memory that is not a thread may outlive the call, on a stack of its own, so the
/// kernel is asked from then on. Threads leave by a jump. A call that creates a process returns in
/// the parent; the child on its own stack does not return.
// SAFETY: interposed on purpose. The code changes rax alone, which carries no argument, and leaves
// by a jump.
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

/// Creates a process that starts in a function, on a stack that the caller provides. Passes on all
/// arguments that `clone` can have, which x86-64 passes alike: the real function does not read
/// those that the caller did not pass.
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
    // SAFETY: passes on the caller's arguments.
    started(unsafe { real(function, stack, flags, argument, parent, local, child) })
}

/// Its other name.
// SAFETY: interposed on purpose; a jump changes nothing.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn __clone() -> c_int {
    naked_asm!("jmp {clone}", clone = sym clone)
}

/// A child was started; returns its number.
extern "C" fn started(pid: c_int) -> c_int {
    children::started(pid)
}

/// No child was started.
extern "C" fn failed(error: c_int) -> c_int {
    errno::store(error);
    -1
}

extern "C" fn missing() -> c_int {
    super::missing()
}
