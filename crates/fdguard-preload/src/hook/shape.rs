//! The common shapes of the interposed functions. Each function is one entry of a table: `opens!`
//! if it opens descriptors, `asks!` and `on_descriptor!` if it uses one.

use core::ffi::{c_int, c_void};

use super::missing;

/// The return value of a C library function.
pub(super) trait Outcome: Copy {
    fn has_failed(self) -> bool;
    fn missing() -> Self;
}

impl Outcome for c_int {
    fn has_failed(self) -> bool {
        self < 0
    }

    fn missing() -> Self {
        missing()
    }
}

impl Outcome for *mut c_void {
    fn has_failed(self) -> bool {
        self.is_null()
    }

    fn missing() -> Self {
        missing();
        core::ptr::null_mut()
    }
}

impl Outcome for i64 {
    fn has_failed(self) -> bool {
        self < 0
    }

    fn missing() -> Self {
        missing().into()
    }
}

impl Outcome for isize {
    fn has_failed(self) -> bool {
        self < 0
    }

    fn missing() -> Self {
        missing() as Self
    }
}

/// The result of a call that is not made because its descriptor is closed from the program's point
/// of view.
pub(super) trait Refusal {
    fn refused() -> Self;
}

impl Refusal for c_int {
    fn refused() -> Self {
        -1
    }
}

impl Refusal for isize {
    fn refused() -> Self {
        -1
    }
}

impl Refusal for i64 {
    fn refused() -> Self {
        -1
    }
}

impl Refusal for *mut c_void {
    fn refused() -> Self {
        core::ptr::null_mut()
    }
}

/// An interposed function: looks the real one up, and runs the last part, which makes the call by
/// `call()` and gives the result.
macro_rules! interposes {
    ($visibility:vis $real:ident, $name:literal,
     fn $function:ident($($argument:ident: $type:ty),*) -> $result:ty, |$call:ident| $body:expr) => {
        static $real: $crate::real::Real<unsafe extern "C" fn($($type),*) -> $result> =
            // SAFETY: the type matches the manual page.
            unsafe { $crate::real::Real::new($name) };

        // SAFETY: interposed on purpose; the type matches the manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        $visibility unsafe extern "C" fn $function($($argument: $type),*) -> $result {
            let Some(real) = $real.get() else {
                return $crate::hook::shape::Outcome::missing();
            };
            // SAFETY: passes on the caller's arguments.
            let $call = || unsafe { real($($argument),*) };
            $body
        }
    };
}
pub(super) use interposes;

/// A function that opens descriptors. The last part makes the call, by `call()`, records what was
/// opened, and gives the result.
macro_rules! opens {
    ($($function:tt)*) => {
        $crate::hook::shape::interposes! { pub(crate) $($function)* }
    };
}
pub(super) use opens;

/// A function that only queries the descriptor in its first argument, for which a placeholder would
/// answer.
macro_rules! asks {
    ($real:ident, $name:literal,
     fn $function:ident($fd:ident: c_int $(, $argument:ident: $type:ty)*) -> $result:ty) => {
        asks! { @with $real, $name, $crate::protect::answer::is_gone($fd),
        fn $function($fd: c_int $(, $argument: $type)*) -> $result }
    };
    // The same for a directory that a path is relative to.
    (at $real:ident, $name:literal,
     fn $function:ident($fd:ident: c_int, $path:ident: *const c_char $(, $argument:ident: $type:ty)*) -> $result:ty) => {
        asks! { @with $real, $name, $crate::protect::answer::is_gone_at($fd, $path),
        fn $function($fd: c_int, $path: *const c_char $(, $argument: $type)*) -> $result }
    };
    // The same with a version argument before it.
    (versioned $real:ident, $name:literal,
     fn $function:ident($version:ident: c_int, $fd:ident: c_int $(, $argument:ident: $type:ty)*) -> $result:ty) => {
        asks! { @with $real, $name, $crate::protect::answer::is_gone($fd),
        fn $function($version: c_int, $fd: c_int $(, $argument: $type)*) -> $result }
    };
    (@with $real:ident, $name:literal, $is_gone:expr, fn $($function:tt)*) => {
        $crate::hook::shape::interposes! { $real, $name, fn $($function)*, |call| {
            if $is_gone {
                $crate::protect::answer::refuse();
                return $crate::hook::shape::Refusal::refused();
            }
            call()
        } }
    };
}
pub(super) use asks;

/// A function that works on the descriptor in its first argument. `wrote` gives the bytes that the
/// kernel accepted.
macro_rules! on_descriptor {
    ($real:ident, $name:literal, $touch:expr,
     fn $function:ident($fd:ident: c_int $(, $argument:ident: $type:ty)*) -> $result:ty
     $(, wrote |$outcome:ident| $bytes:expr)?) => {
        $crate::hook::shape::interposes! { pub(crate) $real, $name,
        fn $function($fd: c_int $(, $argument: $type)*) -> $result, |call| {
            let touch = $crate::call::enter($fd, $touch);
            if $crate::protect::answer::is_put_off($fd) {
                touch.refuse();
                return $crate::hook::shape::Refusal::refused();
            }
            let result = call();
            let has_failed = $crate::hook::shape::Outcome::has_failed(result);
            touch.end_written(has_failed, on_descriptor!(@bytes result $(, |$outcome| $bytes)?));
            result
        } }
    };
    (@bytes $result:ident) => { &[] };
    (@bytes $result:ident, |$outcome:ident| $bytes:expr) => {{
        let $outcome = $result;
        $bytes
    }};
}
pub(super) use on_descriptor;

/// A function for code without a stack frame, which calls another one and preserves all registers
/// that carry arguments, and rax.
macro_rules! preserves_arguments {
    ($(#[$attribute:meta])* fn $function:ident() calls $called:path) => {
        $(#[$attribute])*
        // SAFETY: called with two return addresses on an aligned stack: after seven words and one
        // more it is aligned again for the call; what is pushed is popped.
        #[unsafe(naked)]
        unsafe extern "C" fn $function() {
            core::arch::naked_asm!(
                "push rax",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "sub rsp, 8",
                "call {called}",
                "add rsp, 8",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "pop rax",
                "ret",
                called = sym $called,
            );
        }
    };
}
pub(crate) use preserves_arguments;
