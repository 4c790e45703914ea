//! Thread creation: which code started a thread.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_ulong, c_void};

use crate::real::Real;
use crate::{creator, start};

/// What `pthread_create` returns if there are no resources for a thread.
const EAGAIN: c_int = 11;

type Body = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut c_ulong, *const c_void, Option<Body>, *mut c_void) -> c_int;
// SAFETY: the type matches the manual page.
static PTHREAD_CREATE: Real<Create> = unsafe { Real::new(c"pthread_create") };

/// Python holds the GIL around this call, so the new thread runs no Python code before its creator
/// is known.
// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn pthread_create(
    thread: *mut c_ulong,
    attributes: *const c_void,
    body: Option<Body>,
    argument: *mut c_void,
) -> c_int {
    let Some(real) = PTHREAD_CREATE.get() else {
        return EAGAIN;
    };
    let is_on = start::is_on();
    let starter = if is_on {
        creator::of_new_thread()
    } else {
        None
    };
    // SAFETY: passes on the caller's arguments.
    let result = unsafe { real(thread, attributes, body, argument) };
    if is_on && result == 0 {
        // SAFETY: the call has just written it.
        creator::thread_started(unsafe { thread.read() }, starter);
    }
    result
}
