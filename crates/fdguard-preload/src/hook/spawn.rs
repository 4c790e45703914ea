//! Functions that start a child and return once, or run it on a copy of the stack. See `fork.rs`
//! for the others.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_char, c_int, c_void};

use super::missing;
use crate::children::{started, started_within};
use crate::hand_over::{Program, hand_over};
use crate::real::Real;
use crate::record::now;

/// A function that forks the process.
macro_rules! forks {
    ($real:ident, $name:literal, $function:ident) => {
        // SAFETY: the type matches the manual page.
        static $real: Real<unsafe extern "C" fn() -> c_int> = unsafe { Real::new($name) };

        // SAFETY: interposed on purpose; the type matches the manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        unsafe extern "C" fn $function() -> c_int {
            let Some(real) = $real.get() else {
                return missing();
            };
            // SAFETY: passes on the caller's call. The child returns here, too, on a copy of this
            // stack.
            started(unsafe { real() })
        }
    };
}

forks! { FORK, c"fork", fork }
forks! { UNDERSCORED_FORK, c"__fork", __fork }

// SAFETY: the type matches the manual page.
static PLAIN_FORK: Real<unsafe extern "C" fn() -> c_int> = unsafe { Real::new(c"_Fork") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
#[expect(non_snake_case, reason = "the name that C gave it")]
unsafe extern "C" fn _Fork() -> c_int {
    let Some(real) = PLAIN_FORK.get() else {
        return missing();
    };
    // SAFETY: as for `fork`.
    started(unsafe { real() })
}

/// Looks up a function that must not be looked up when it is called: a signal handler may call it.
pub(super) fn find() {
    for real in [&FORK, &UNDERSCORED_FORK, &PLAIN_FORK] {
        let _ = real.get();
    }
}

/// A function that starts a program in a new process and returns an error number.
macro_rules! spawns {
    ($real:ident, $name:literal, $function:ident, $program:path) => {
        static $real: Real<
            unsafe extern "C" fn(
                *mut c_int,
                *const c_char,
                *const c_void,
                *const c_void,
                *const c_void,
                *const c_void,
            ) -> c_int,
        > =
            // SAFETY: the type matches the manual page.
            unsafe { Real::new($name) };

        // SAFETY: interposed on purpose; the type matches the manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        unsafe extern "C" fn $function(
            pid: *mut c_int,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: *const c_void,
            environment: *const c_void,
        ) -> c_int {
            const ENOSYS: c_int = 38;
            let Some(real) = $real.get() else {
                return ENOSYS;
            };
            let mut number: c_int = 0;
            // The caller may not want the number.
            let place = if pid.is_null() { &raw mut number } else { pid };
            let start = |variables: *const *const c_char| {
                let variables = variables.cast();
                // SAFETY: the caller's arguments, except for a local to write to and perhaps a list
                // on this stack.
                unsafe { real(place, path, actions, attributes, arguments, variables) }
            };
            // SAFETY: passes on the caller's arguments.
            let result = unsafe { hand_over($program(path), environment.cast(), start) };
            if result == 0 {
                // SAFETY: the call succeeded, so it wrote the number.
                started(unsafe { place.read() });
            }
            result
        }
    };
}

spawns! { POSIX_SPAWN, c"posix_spawn", posix_spawn, Program::At }
spawns! { POSIX_SPAWNP, c"posix_spawnp", posix_spawnp, Program::Named }

// SAFETY: the type matches the manual page.
static SYSTEM: Real<unsafe extern "C" fn(*const c_char) -> c_int> = unsafe { Real::new(c"system") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    let Some(real) = SYSTEM.get() else {
        return missing();
    };
    let since = now();
    // SAFETY: passes on the caller's argument.
    let result = unsafe { real(command) };
    // Without a command it only reports whether there is a shell.
    if !command.is_null() && result != -1 {
        started_within(since);
    }
    result
}

/// The offset at which the C library keeps the child's pid of a `popen` stream: behind the stream
/// itself, since version 2.1. A tracer trusts the pid only if the caller is that process's parent.
const CHILD_OF_STREAM: usize = 224;
/// `PID_MAX_LIMIT` of the kernel.
const MOST: c_int = 1 << 22;

/// The child of a `popen` stream; 0 if it is unknown.
///
/// # Safety
/// An open stream that `popen` returned, or null.
pub(super) unsafe fn child_of_stream(stream: *const c_void) -> c_int {
    if stream.is_null() {
        return 0;
    }
    let place = stream.wrapping_byte_add(CHILD_OF_STREAM).cast::<c_int>();
    // SAFETY: guaranteed by the caller; a stream with its lock is larger than that in every C
    // library.
    let pid = unsafe { place.read() };
    if (1..=MOST).contains(&pid) { pid } else { 0 }
}
