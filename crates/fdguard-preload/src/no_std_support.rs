//! Symbols that a shared object without the standard library must define.

#![expect(
    unsafe_code,
    reason = "names that the compiler and the loader look for"
)]

use core::ffi::{c_char, c_int};

/// There is no path to a panic, and a test looks for one in the built object. If the compiler ever
/// leaves one, the thread stops here instead of ending the traced program in a random state.
#[panic_handler]
fn stop(_: &core::panic::PanicInfo<'_>) -> ! {
    crate::sys::abort()
}

/// Referenced by the unwind tables of the precompiled core library; never called, because nothing
/// here catches.
// SAFETY: the name is reserved for programs linked without the standard library, such as this one.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// The loader calls it before the program's first instruction.
// SAFETY: an entry of this section is a function that glibc's loader calls with the arguments of
// `main`, which `start` takes.
#[used]
#[unsafe(link_section = ".init_array")]
static START: unsafe extern "C" fn(c_int, *const *const c_char) = start;

unsafe extern "C" fn start(count: c_int, arguments: *const *const c_char) {
    if !crate::real::is_preloaded() {
        // The program is running: everything waits for the tracer's request.
        crate::attach::wait_for_request();
        return;
    }
    // SAFETY: the loader calls this before the program begins.
    unsafe { crate::node::leave_locked(count, arguments) };
    crate::hook::find();
    crate::start::start();
    crate::start::look_around();
    crate::protect::start();
}

/// The loader calls it when the program ends by `exit`, after the program's own exit handlers.
// SAFETY: an entry of this section is a function without arguments.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = crate::exit_report::tell;
