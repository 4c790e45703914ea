//! Who holds an object: the process is copied, and the copy walks its own heap, which nothing
//! changes any more. See decision 150.
//!
//! The process itself does no more than to make the copy. The copy shares the table of descriptors,
//! so that it keeps none open, and sends no signal at its end, so that no `wait` of the program
//! sees it. It runs no Python, allocates in maps of its own, and waits to be read.

#![expect(unsafe_code, reason = "entries that the tracer calls by name")]

mod copy;
pub(crate) mod node;
pub(crate) mod pause;
mod walk;

use core::ffi::{c_int, c_void};

use fdguard_wire::WalkRequest;

use crate::{errno, sys};

/// What `errno` says of a request that cannot be read.
const EINVAL: c_int = 22;

/// Copies the process; see `fdguard_wire::WALK`.
// SAFETY: a name of fdguard's own.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fdguard_walk(request: *const c_void, size: usize) -> c_int {
    let error = errno::load();
    let request = (!request.is_null())
        // SAFETY: the caller passes as many readable bytes as it says.
        .then(|| unsafe { core::slice::from_raw_parts(request.cast::<u8>(), size) })
        .and_then(WalkRequest::read);
    let answer = match request {
        // A handler of the program must not run in the copy.
        Some(request) => sys::without_signals(|| copy::start(&request)),
        None => -EINVAL,
    };
    errno::store(error);
    answer
}

/// Ends a copy; see `fdguard_wire::END_WALK`.
// SAFETY: a name of fdguard's own.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fdguard_end_walk(request: *const c_void, size: usize) -> c_int {
    let error = errno::load();
    let bytes = match request.is_null() {
        true => &[],
        // SAFETY: the caller passes as many readable bytes as it says.
        false => unsafe { core::slice::from_raw_parts(request.cast::<u8>(), size) },
    };
    let answer = match bytes.split_first_chunk() {
        Some((pid, ranges)) => {
            node::forbid_copies(ranges);
            copy::end(u32::from_le_bytes(*pid))
        }
        None => -EINVAL,
    };
    errno::store(error);
    answer
}
