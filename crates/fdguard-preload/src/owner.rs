//! Whether the calling code runs in the process that owns the mapping, usually without a system
//! call.
//!
//! There are three ways to run this code without owning the table. A process may have a *copy* of
//! the memory (a fork without the C library): a page that the kernel wipes in such a child reveals
//! it. Or it may share the *same* memory (`vfork`, `clone` with `CLONE_VM`): nothing in memory
//! reveals it, so `hook/fork.rs` notes each of these calls beforehand. In case of doubt the kernel
//! is asked at every call. And a thread may have left the table of its process (`unshare`,
//! `close_range`): `hook/apart.rs` marks it.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{inflight, start, sys, thread};

const PAGE: usize = 4096;

/// A page of its own.
#[repr(C, align(4096))]
pub(crate) struct Page([AtomicU64; PAGE / 8]);

/// The first word is not 0 while only processes that the hooks noted can share this memory; the
/// kernel zeroes it in a copy. The hooks set the second word to 1 and the first to 0 when a process
/// may from then on run in this memory unnoticed. A copy does not share its memory with such a
/// process.
pub(crate) static ALONE: Page = Page([const { AtomicU64::new(0) }; PAGE / 8]);

/// The process that the memory belongs to.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// This process is the owner from here on. Called before the program runs, and in a forked child,
/// which has one thread.
pub(crate) fn adopt(pid: u32) {
    PROCESS.store(pid, Ordering::Relaxed);
    let page = &raw const ALONE as usize;
    // Before Linux 4.14 a copy cannot be detected: the kernel is asked each time.
    let is_wiped = sys::wipe_on_fork(page, PAGE);
    let is_doubtful = ALONE.0[1].load(Ordering::Relaxed) != 0;
    word().store(u64::from(is_wiped && !is_doubtful), Ordering::Relaxed);
}

/// The same in a running program. A child of `vfork` that began before may be in this memory: until
/// [`trust`] the kernel is asked each time.
pub(crate) fn adopt_running(pid: u32) {
    PROCESS.store(pid, Ordering::Relaxed);
    word().store(0, Ordering::Relaxed);
}

/// No process that began before can still be in this memory.
pub(crate) fn trust() {
    adopt(PROCESS.load(Ordering::Relaxed));
}

/// Whether the caller belongs to the process that owns the memory, as the kernel says.
pub(crate) fn is_process() -> bool {
    sys::process() == PROCESS.load(Ordering::Relaxed)
}

/// Whether the caller belongs to the process that owns the memory.
#[inline]
pub(crate) fn is_here() -> bool {
    let is_alone = word().load(Ordering::Relaxed) != 0 && thread::vforks() == 0;
    is_alone || (!thread::is_apart() && sys::process() == PROCESS.load(Ordering::Relaxed))
}

/// The calling thread has just asked the kernel for a descriptor table of its own. A process with
/// one thread keeps the one it has.
pub(crate) fn leave_table() {
    if inflight::is_threaded() && sys::has_threads() && is_here() {
        if let Some(mapping) = start::current() {
            mapping.left_table();
        }
        thread::leave_table();
    }
}

#[inline]
fn word() -> &'static AtomicU64 {
    &ALONE.0[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does the same as the hooks, which have no stack frame.
    fn doubt() {
        ALONE.0[1].store(1, Ordering::Relaxed);
        word().store(0, Ordering::Relaxed);
    }

    #[test]
    fn in_doubt_the_kernel_decides() {
        adopt(sys::process());
        assert!(is_here());
        assert_eq!(word().load(Ordering::Relaxed), 1, "without asking");
        doubt();
        assert!(is_here());
        adopt(sys::process() + 1);
        assert_eq!(word().load(Ordering::Relaxed), 0, "a doubt stays");
        assert!(!is_here());
        adopt(sys::process());
        assert!(is_here());
    }
}
