//! Exits that skip the handlers of `exit`.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::c_int;

use crate::real::Real;
use crate::why::pause;
use crate::{exit_report, sys};

// SAFETY: the type matches the manual page.
static EXIT: Real<unsafe extern "C" fn(c_int) -> !> = unsafe { Real::new(c"_exit") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn _exit(status: c_int) -> ! {
    end(status)
}

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
#[expect(non_snake_case, reason = "the name that C gave it")]
unsafe extern "C" fn _Exit(status: c_int) -> ! {
    end(status)
}

fn end(status: c_int) -> ! {
    pause::ending();
    exit_report::tell();
    let Some(real) = EXIT.get() else {
        sys::exit(status);
    };
    // SAFETY: passes on the caller's argument.
    unsafe { real(status) }
}
