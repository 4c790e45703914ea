//! Symbols that a shared object without the standard library must define.

#![expect(
    unsafe_code,
    reason = "names that the compiler and the loader look for"
)]

use core::ffi::{c_char, c_int};

/// There is no path to a panic, and a test looks for one in the built object. Should the compiler
/// ever leave one, the thread stops here instead of ending somebody else's program in a random
/// state.
#[panic_handler]
fn stop(_: &core::panic::PanicInfo<'_>) -> ! {
    crate::sys::abort()
}

/// Named by the unwind tables of the precompiled core library; never called, because nothing here
/// catches.
// SAFETY: the name belongs to whoever links a program without the standard library, and that is us.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// The loader calls it before the program's first instruction.
// SAFETY: an entry of this section is a function that glibc's loader calls with the arguments of
// `main`, which `start` takes.
#[used]
#[unsafe(link_section = ".init_array")]
static START: unsafe extern "C" fn(c_int, *const *const c_char) = start;

unsafe extern "C" fn start(count: c_int, arguments: *const *const c_char) {
    // SAFETY: the loader calls us before the program begins.
    unsafe { crate::node::leave_locked(count, arguments) };
    crate::hook::find();
    crate::start::start();
    crate::start::look_around();
    crate::protect::start();
}

/// The loader calls it when the program ended by `exit`, after what the program wanted to do then.
// SAFETY: an entry of this section is a function without arguments.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = crate::exit_report::tell;
