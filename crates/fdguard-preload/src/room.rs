//! Whether there is enough stack to unwind.
//!
//! A signal handler may run on a stack of a few kilobytes, anywhere in memory. Writing past its end
//! would overwrite other data.

use crate::{sys, thread};

/// Enough stack, in bytes, for everything that the library does.
const ENOUGH: usize = 32 * 1024;

/// Whether there is enough stack here. Asks the kernel only outside the known part of the thread's
/// own stack.
pub(crate) fn is_enough() -> bool {
    let place = 0_u8;
    let here = &raw const place as usize;
    let (low, top) = thread::stack();
    if here >= low && here < top {
        return true;
    }
    match sys::alternate_stack() {
        Some(bottom) => here.saturating_sub(bottom) > ENOUGH,
        None => true,
    }
}
