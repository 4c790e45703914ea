//! The one shape of every function that works on a descriptor and neither opens nor closes one.

use core::ffi::c_int;

use super::missing;

/// What a function of the C library gives back.
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
        static $real: $crate::real::Real<unsafe extern "C" fn(c_int $(, $type)*) -> $result> =
            // SAFETY: the type of its manual page.
            unsafe { $crate::real::Real::new($name) };

        // SAFETY: the name is interposed on purpose, with the type of its manual page.
        #[cfg_attr(fdguard_injected, unsafe(no_mangle))]
        unsafe extern "C" fn $function($fd: c_int $(, $argument: $type)*) -> $result {
            let Some(real) = $real.get() else {
                return $crate::hook::each::Outcome::missing();
            };
            let call = $crate::call::begin($fd, $touch);
            // SAFETY: the caller's own arguments.
            let result = unsafe { real($fd $(, $argument)*) };
            let has_failed = $crate::hook::each::Outcome::has_failed(result);
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
pub(super) use on_descriptor;
