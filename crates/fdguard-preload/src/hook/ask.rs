//! Existence checks of files, which runtime agents use to send messages to the library.

#![expect(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{CStr, c_char, c_int};

use super::missing;
use crate::real::Real;
use crate::{agent_message, errno, record, start, why};

const ENOENT: c_int = 2;
const ENAMETOOLONG: c_int = 36;

// SAFETY: the type matches the manual page.
static ACCESS: Real<unsafe extern "C" fn(*const c_char, c_int) -> c_int> =
    unsafe { Real::new(c"access") };

// SAFETY: interposed on purpose; the type matches the manual page.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    let Some(real) = ACCESS.get() else {
        return missing();
    };
    // SAFETY: passes on the caller's arguments.
    let result = unsafe { real(path, mode) };
    // Programs probe memory with this call, so only memory that the kernel could read is read here.
    if result == -1 && matches!(errno::load(), ENOENT | ENAMETOOLONG) {
        // SAFETY: the kernel has read the path up to its end, or as many bytes as a path may have.
        if let Some(message) = unsafe { message(path) } {
            if let Some(answer) = why::node::answer(message).filter(|_| start::is_on()) {
                return if answer { 0 } else { result };
            }
            record::told(message);
            // An agent that came into a running program leaves when there is no recording.
            if start::is_on() {
                return 0;
            }
        }
    }
    result
}

/// The message after the prefix in a path; reads no further than the prefix matches.
///
/// # Safety
/// A C string, or at least as many readable bytes as a path may have.
unsafe fn message<'a>(path: *const c_char) -> Option<&'a [u8]> {
    for (at, byte) in agent_message::CALL.iter().enumerate() {
        // SAFETY: the bytes before were not the end of the string.
        let found = unsafe { path.cast::<u8>().wrapping_add(at).read() };
        if found != *byte {
            return None;
        }
    }
    // SAFETY: only agents write this, and they write C strings.
    let rest = unsafe { CStr::from_ptr(path.wrapping_add(agent_message::CALL.len())) };
    Some(rest.to_bytes())
}
