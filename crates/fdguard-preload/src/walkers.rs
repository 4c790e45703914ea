//! Threads that are reading the interpreter's frames, and the thread that frees that memory.
//!
//! An interpreter that shuts down frees the frames of threads it did not wait for (Python's daemon
//! threads), while one of them may be in a hook, in the middle of a walk. The frames' memory is
//! returned to the kernel, so the walk would crash the program. So walks are counted: the thread
//! that shuts down waits for them before it frees memory, and later walks do not start. A walk
//! takes microseconds and waits for nothing.

use core::sync::atomic::{AtomicU32, Ordering, fence};

use crate::real;

/// How many threads are walking now.
static WALKERS: AtomicU32 = AtomicU32::new(0);
/// Whether a wait timed out: a thread that is cancelled during its walk never finishes it.
static IS_VAIN: AtomicU32 = AtomicU32::new(0);
/// Nanoseconds in which every thread is scheduled even on a busy machine.
const PATIENCE: u64 = 200_000_000;

/// A walk: from before the check whether the interpreter is shutting down until its memory is no
/// longer read.
#[derive(Debug)]
pub(crate) struct Walk(());

impl Walk {
    /// Begins a walk.
    #[inline]
    pub(crate) fn start() -> Self {
        WALKERS.fetch_add(1, Ordering::SeqCst);
        // The shutdown check must happen after this walk is visible.
        fence(Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Walk {
    #[inline]
    fn drop(&mut self) {
        WALKERS.fetch_sub(1, Ordering::Release);
    }
}

/// Waits until no thread walks. The calling thread must already have announced that no walk may
/// begin.
pub(crate) fn wait() {
    fence(Ordering::SeqCst);
    if WALKERS.load(Ordering::Acquire) == 0 || IS_VAIN.load(Ordering::Relaxed) != 0 {
        return;
    }
    let began = real::now();
    while WALKERS.load(Ordering::Acquire) != 0 {
        if real::now().saturating_sub(began) > PATIENCE {
            IS_VAIN.store(1, Ordering::Relaxed);
            return;
        }
        core::hint::spin_loop();
    }
}

/// In a forked child: the threads that walked do not exist.
pub(crate) fn forget() {
    WALKERS.store(0, Ordering::Relaxed);
    IS_VAIN.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use super::{IS_VAIN, Walk, forget, wait};

    /// One test, because there is one counter in a process.
    #[test]
    fn the_crash_of_a_daemon_thread_at_exit_memory_is_kept_until_its_walk_is_over() {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let (begun, has_begun) = mpsc::channel();
        let walker = std::thread::spawn(move || {
            let walk = Walk::start();
            begun.send(()).unwrap();
            for _ in 0..1000 {
                std::hint::black_box(std::thread::current().id());
            }
            IS_OVER.store(true, Ordering::SeqCst);
            drop(walk);
        });
        has_begun.recv().unwrap();
        wait();
        // If the machine did not schedule the walker for that long, the wait is abandoned and
        // reported.
        let is_vain = IS_VAIN.load(Ordering::SeqCst) != 0;
        assert!(IS_OVER.load(Ordering::SeqCst) || is_vain);
        walker.join().unwrap();
        // A walk that never ends is waited for once, and a child does not know of it.
        let _never_over = std::mem::ManuallyDrop::new(Walk::start());
        wait();
        assert_eq!(IS_VAIN.load(Ordering::SeqCst), 1);
        wait();
        forget();
        assert_eq!(IS_VAIN.load(Ordering::SeqCst), 0);
        wait();
        assert_eq!(IS_VAIN.load(Ordering::SeqCst), 0);
    }
}
