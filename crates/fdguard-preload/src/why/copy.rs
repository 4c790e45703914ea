//! The copy of the process: how it begins, waits and ends.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use fdguard_wire::{WalkRequest, WalkState};

use super::walk;
use crate::sys;

const RT_SIGACTION: usize = 13;
const RT_SIGPROCMASK: usize = 14;
const SETITIMER: usize = 38;
const GETPID: usize = 39;
const CLONE: usize = 56;
const WAIT4: usize = 61;
const KILL: usize = 62;
const GETPPID: usize = 110;
const PRCTL: usize = 157;
const SETRLIMIT: usize = 160;
const CLONE_FILES: usize = 0x400;
const PR_SET_PDEATHSIG: usize = 1;
const PR_SET_NAME: usize = 15;
const RLIMIT_CORE: usize = 4;
const SIGKILL: usize = 9;
const SIGALRM: usize = 14;
const SET: usize = 2;
/// How often the copy sees whether its time is over, in nanoseconds.
const NAP: u64 = 20_000_000;
/// What `errno` says of a copy that has not ended yet.
const EAGAIN: c_int = 11;
/// `__WALL`: such a child is seen by no other `wait`.
const EVERY_KIND: usize = 0x4000_0000;
/// `__WCLONE`: children that send `SIGCHLD`, which are the program's own, are not waited for.
const CLONED: usize = 0x8000_0000;
/// Signals of faults: ILL, TRAP, BUS, FPE, SEGV, SYS.
const FAULTS: [usize; 6] = [4, 5, 7, 8, 11, 31];
const MONOTONIC: usize = 1;

/// The last copy; 0 if there is none.
static LAST: AtomicU32 = AtomicU32::new(0);

/// Makes the copy; returns its pid in the process, or a negative `errno`. Signals must be blocked.
pub(super) fn start(request: &WalkRequest) -> c_int {
    reap_last();
    // SAFETY: takes no memory.
    let parent = unsafe { sys::call(GETPID, [0; 6]) };
    // SAFETY: a new process with a copy of this memory and of this stack; it has no stack argument,
    // so both go on from here.
    let pid = unsafe { sys::call(CLONE, [CLONE_FILES, 0, 0, 0, 0, 0]) };
    if pid == 0 {
        live(request, parent);
    }
    remember(pid);
    c_int::try_from(pid).unwrap_or(-1)
}

/// The copy that was made last, if the kernel made one.
pub(super) fn remember(pid: isize) {
    LAST.store(u32::try_from(pid).unwrap_or(0), Ordering::Relaxed);
}

/// Removes the entry of the last copy, if it has ended and nobody did: the fdguard that asked for
/// it was killed.
pub(super) fn reap_last() {
    let last = LAST.load(Ordering::Relaxed);
    if last != 0 {
        // A forked child has the number of a copy that is not its own: that fails.
        // SAFETY: takes no memory.
        let _ = unsafe { sys::call(WAIT4, [last as usize, 0, CLONED | 1, 0, 0, 0]) };
    }
}

/// Removes the entry of a copy that has ended. The kernel takes a while to give its memory back:
/// one that still runs is told to end, and the answer is to ask again.
pub(super) fn end(copy: u32) -> c_int {
    let pid = copy as usize;
    // Only a child of this process can be meant: a stranger's number is not waited for, nor killed.
    // SAFETY: takes no memory.
    let waited = unsafe { sys::call(WAIT4, [pid, 0, EVERY_KIND | 1, 0, 0, 0]) };
    if waited != 0 {
        // The number may become that of any process.
        let _ = LAST.compare_exchange(copy, 0, Ordering::Relaxed, Ordering::Relaxed);
        return 0;
    }
    // SAFETY: a child that was not waited for keeps its number.
    let _ = unsafe { sys::call(KILL, [pid, SIGKILL, 0, 0, 0, 0]) };
    -EAGAIN
}

/// All that the copy does.
fn live(request: &WalkRequest, parent: isize) -> ! {
    become_harmless();
    // The program may have ended before its end was made the copy's: nobody would end the copy, and
    // it would keep the program's descriptors open.
    if is_orphan(u32::try_from(parent).unwrap_or(0)) {
        sys::exit(0);
    }
    end_after(request.life);
    if let Some(head) = walk::new_head(request) {
        let state = walk::walk(request, head);
        walk::finish(head, state);
        if state == WalkState::Done {
            wait(request.patience);
        } else {
            // Long enough to be seen.
            wait(request.patience.min(1000));
        }
    }
    sys::exit(0)
}

/// Whether the program that made the copy has ended.
pub(super) fn is_orphan(parent: u32) -> bool {
    // SAFETY: takes no memory.
    let now = unsafe { sys::call(GETPPID, [0; 6]) };
    u32::try_from(now) != Ok(parent)
}

/// It ends with the program, and its faults are nobody's business.
pub(super) fn become_harmless() {
    // SAFETY: takes no memory.
    let _ = unsafe { sys::call(PRCTL, [PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0]) };
    let name = c"fdguard-why".as_ptr() as usize;
    // SAFETY: a C string of less than 16 bytes.
    let _ = unsafe { sys::call(PRCTL, [PR_SET_NAME, name, 0, 0, 0, 0]) };
    // One byte: even a program that takes cores is not started then.
    let limit = [1_u64, 1];
    let place = &raw const limit as usize;
    // SAFETY: the kernel reads two words.
    let _ = unsafe { sys::call(SETRLIMIT, [RLIMIT_CORE, place, 0, 0, 0, 0]) };
    let default = [0_usize; 4];
    for signal in FAULTS {
        let place = &raw const default as usize;
        // SAFETY: the kernel reads four words; handlers are the copy's own.
        let _ = unsafe { sys::call(RT_SIGACTION, [signal, place, 0, 8, 0, 0]) };
    }
}

/// The kernel ends the copy after so many milliseconds.
pub(super) fn end_after(time: u64) {
    let default = [0_usize; 4];
    let place = &raw const default as usize;
    // SAFETY: the kernel reads four words; handlers are the copy's own.
    let _ = unsafe { sys::call(RT_SIGACTION, [SIGALRM, place, 0, 8, 0, 0]) };
    // Only this one signal is let in.
    let set = !(1_u64 << (SIGALRM - 1));
    let place = &raw const set as usize;
    // SAFETY: the kernel reads one set.
    let _ = unsafe { sys::call(RT_SIGPROCMASK, [SET, place, 0, 8, 0, 0]) };
    // Interval and first time, each in seconds and microseconds.
    let timer = [0, 0, time / 1000, time % 1000 * 1000];
    let place = &raw const timer as usize;
    // SAFETY: the kernel reads four words.
    let _ = unsafe { sys::call(SETITIMER, [0, place, 0, 0, 0, 0]) };
}

/// Waits to be ended, at most this many milliseconds.
fn wait(patience: u64) {
    let end = sys::clock(MONOTONIC).saturating_add(patience.saturating_mul(1_000_000));
    while sys::clock(MONOTONIC) < end {
        sys::nap(NAP);
    }
}
