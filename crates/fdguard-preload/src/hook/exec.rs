//! `exec`: without the library if the new program's loader cannot load or read it.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::arch::naked_asm;
use core::ffi::{c_char, c_int};

use super::missing;
use crate::errno;
use crate::hand_over::{Program, hand_over};
use crate::real::Real;

const E2BIG: c_int = 7;
/// The most arguments of a call that lists them one by one; more fail as too many.
const LISTED: usize = 8192;

type List = *const *const c_char;

// SAFETY: the types match the manual pages.
static EXECVE: Real<unsafe extern "C" fn(*const c_char, List, List) -> c_int> =
    unsafe { Real::new(c"execve") };
// SAFETY: as above.
static EXECVPE: Real<unsafe extern "C" fn(*const c_char, List, List) -> c_int> =
    unsafe { Real::new(c"execvpe") };
// SAFETY: as above.
static EXECV: Real<unsafe extern "C" fn(*const c_char, List) -> c_int> =
    unsafe { Real::new(c"execv") };
// SAFETY: as above.
static EXECVP: Real<unsafe extern "C" fn(*const c_char, List) -> c_int> =
    unsafe { Real::new(c"execvp") };
// SAFETY: as above.
static FEXECVE: Real<unsafe extern "C" fn(c_int, List, List) -> c_int> =
    unsafe { Real::new(c"fexecve") };

unsafe extern "C" {
    /// Resolved by the loader rather than as the next definition: a program that mentions it has
    /// its own copy, which then counts.
    static environ: List;
}

/// Looks up functions that a child in this memory must not look up.
pub(super) fn find() {
    let _ = EXECVE.get();
    let _ = EXECVPE.get();
    let _ = EXECV.get();
    let _ = EXECVP.get();
    let _ = FEXECVE.get();
}

/// The program's own environment.
fn environment() -> List {
    // SAFETY: the variable does not move; a program that changes it meanwhile takes the same risk
    // with the C library itself.
    unsafe { (&raw const environ).read_volatile() }
}

/// A function that takes an environment.
macro_rules! given {
    ($real:ident, $function:ident, $which:ty, $program:path) => {
        // SAFETY: interposed on purpose; the type matches the manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        unsafe extern "C" fn $function(which: $which, arguments: List, variables: List) -> c_int {
            let Some(real) = $real.get() else {
                return missing();
            };
            // SAFETY: the caller's arguments, or a list on this stack that lives as long as the
            // call.
            let start = |variables| unsafe { real(which, arguments, variables) };
            // SAFETY: passes on the caller's arguments.
            unsafe { hand_over($program(which), variables, start) }
        }
    };
}

given! { EXECVE, execve, *const c_char, Program::At }
given! { EXECVPE, execvpe, *const c_char, Program::Named }
given! { FEXECVE, fexecve, c_int, Program::Open }

/// A function that uses the program's own environment, and the one that does the same with another.
macro_rules! own {
    ($real:ident, $with:ident, $function:ident, $program:path) => {
        // SAFETY: interposed on purpose; the type matches the manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        unsafe extern "C" fn $function(which: *const c_char, arguments: List) -> c_int {
            let (Some(real), Some(with)) = ($real.get(), $with.get()) else {
                return missing();
            };
            let own = environment();
            let start = |variables: List| {
                if variables == own {
                    // SAFETY: passes on the caller's arguments.
                    unsafe { real(which, arguments) }
                } else {
                    // SAFETY: the caller's arguments, and a list on this stack that lives as long
                    // as the call.
                    unsafe { with(which, arguments, variables) }
                }
            };
            // SAFETY: the caller's argument, and the program's environment.
            unsafe { hand_over($program(which), own, start) }
        }
    };
}

own! { EXECV, EXECVE, execv, Program::At }
own! { EXECVP, EXECVPE, execvp, Program::Named }

/// A function with its arguments one by one: they are pushed to the stack, and a pointer to the
/// five from registers and one to the others are passed on.
macro_rules! listed {
    ($function:ident, $gather:ident) => {
        // SAFETY: interposed on purpose. Five words and the return address leave the stack aligned
        // for the call; what is pushed is removed again.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        #[unsafe(naked)]
        unsafe extern "C" fn $function() -> c_int {
            naked_asm!(
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                "call {gather}",
                "add rsp, 40",
                "ret",
                gather = sym $gather,
            )
        }
    };
}

listed! { execl, gather_path }
listed! { execlp, gather_name }
listed! { execle, gather_with }

/// This many arguments are gathered in little space; more need more of the stack.
const FEW: usize = 62;

/// A gathered argument list.
struct ArgumentList<const N: usize> {
    words: [*const c_char; N],
    /// Where the null is.
    end: usize,
}

/// # Safety
/// Five words must be readable, then words up to a null.
unsafe fn gather<const N: usize>(registers: List, others: List) -> Option<ArgumentList<N>> {
    let mut gathered = ArgumentList {
        words: [core::ptr::null(); N],
        end: 0,
    };
    for (index, place) in gathered.words.iter_mut().enumerate() {
        // SAFETY: guaranteed by the caller; no word behind the null is read.
        *place = unsafe { word(registers, others, index) };
        if place.is_null() {
            gathered.end = index;
            return Some(gathered);
        }
    }
    None
}

/// # Safety
/// The word must be readable.
unsafe fn word(registers: List, others: List, index: usize) -> *const c_char {
    const REGISTERS: usize = 5;
    let place = match index.checked_sub(REGISTERS) {
        None => registers.wrapping_add(index),
        Some(index) => others.wrapping_add(index),
    };
    // SAFETY: guaranteed by the caller.
    unsafe { place.read() }
}

/// Gathers the arguments and passes them on, with the index of what follows their null.
///
/// # Safety
/// As for [`gather`].
unsafe fn with_arguments(
    registers: List,
    others: List,
    start: impl FnOnce(List, usize) -> c_int,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    if let Some(gathered) = unsafe { gather::<FEW>(registers, others) } {
        return start(gathered.words.as_ptr(), gathered.end);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { with_many(registers, others, start) }
}

/// # Safety
/// As for [`gather`].
#[cold]
#[inline(never)]
unsafe fn with_many(
    registers: List,
    others: List,
    start: impl FnOnce(List, usize) -> c_int,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    match unsafe { gather::<LISTED>(registers, others) } {
        Some(gathered) => start(gathered.words.as_ptr(), gathered.end),
        None => {
            errno::store(E2BIG);
            -1
        }
    }
}

unsafe extern "C" fn gather_path(path: *const c_char, registers: List, others: List) -> c_int {
    // SAFETY: the caller's path, and a list of the caller's arguments.
    let start = |arguments, _| unsafe { execv(path, arguments) };
    // SAFETY: the arguments of the call, which end with a null.
    unsafe { with_arguments(registers, others, start) }
}

unsafe extern "C" fn gather_name(name: *const c_char, registers: List, others: List) -> c_int {
    // SAFETY: the caller's name, and a list of the caller's arguments.
    let start = |arguments, _| unsafe { execvp(name, arguments) };
    // SAFETY: the arguments of the call, which end with a null.
    unsafe { with_arguments(registers, others, start) }
}

unsafe extern "C" fn gather_with(path: *const c_char, registers: List, others: List) -> c_int {
    let start = |arguments, end: usize| {
        // SAFETY: the environment follows the null.
        let variables = unsafe { word(registers, others, end + 1) };
        // SAFETY: the caller's path and environment, and a list of the caller's arguments.
        unsafe { execve(path, arguments, variables.cast()) }
    };
    // SAFETY: the arguments of the call, which end with a null.
    unsafe { with_arguments(registers, others, start) }
}
