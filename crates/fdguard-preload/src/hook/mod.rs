//! The entry points: each calls the function that the program meant and tells the recorder what came of it.
//!
//! Between the two nothing is held: a signal handler may leave with `longjmp`, and a thread may be cancelled inside of the
//! call (but a mark in the thread's seat). Functions with a variable number of arguments have the largest fixed number here, which x86-64 passes alike.

mod ask;
mod close;
mod control;
mod descriptor;
mod file;
mod module;
mod receive;
mod stream;
mod syscall;
mod terminal;
mod transfer;
mod wait;

use core::ffi::c_int;

/// Looks up what must be known before the program begins.
pub(crate) fn find() {
    syscall::find();
}

const ENOSYS: c_int = 38;

/// The C library has no such function.
fn missing() -> c_int {
    crate::errno::store(ENOSYS);
    -1
}

/// What a function of the C library gives back.
trait Outcome: Copy {
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

impl Outcome for isize {
    fn has_failed(self) -> bool {
        self < 0
    }

    fn missing() -> Self {
        missing() as Self
    }
}

/// A function that works on the descriptor of its first argument. `wrote` gives what the kernel took.
macro_rules! on_descriptor {
    ($real:ident, $name:literal, $touch:expr,
     fn $function:ident($fd:ident: c_int $(, $argument:ident: $type:ty)*) -> $result:ty
     $(, wrote |$outcome:ident| $bytes:expr)?) => {
        // SAFETY: the type of its manual page.
        static $real: $crate::real::Real<unsafe extern "C" fn(c_int $(, $type)*) -> $result> =
            unsafe { $crate::real::Real::new($name) };

        // SAFETY: the name is interposed on purpose, with the type of its manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        unsafe extern "C" fn $function($fd: c_int $(, $argument: $type)*) -> $result {
            let Some(real) = $real.get() else {
                return $crate::hook::Outcome::missing();
            };
            let call = $crate::call::begin($fd, $touch);
            // SAFETY: the caller's own arguments.
            let result = unsafe { real($fd $(, $argument)*) };
            let has_failed = $crate::hook::Outcome::has_failed(result);
            call.end_written(has_failed, on_descriptor!(@bytes result $(, |$outcome| $bytes)?));
            result
        }
    };
    (@bytes $result:ident) => { &[] };
    (@bytes $result:ident, |$outcome:ident| $bytes:expr) => {{
        let $outcome = $result;
        $bytes
    }};
}
use on_descriptor;
