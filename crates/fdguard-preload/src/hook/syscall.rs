//! System calls by number through the C library's `syscall`, for calls without a wrapper or without
//! one when the program was written.

#![expect(unsafe_code, reason = "stands in for a function of the C library")]

use core::arch::naked_asm;
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use fdguard_wire::OpenCall;

use super::reap::{EndedChild, collected};
use super::restrain::restrain;
use super::{apart, close as hook, missing, retry_when_full};
use crate::children::started;
use crate::protect::close::{self, Outcome};
use crate::protect::{self, answer};
use crate::real::Real;
use crate::record::{born, ended, ending, reborn};

type Syscall =
    unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

// SAFETY: the type matches the manual page, with the largest number of arguments.
static SYSCALL: Real<Syscall> = unsafe { Real::new(c"syscall") };

/// The real function for calls that are not recorded; null until it is known.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

const CLOSE: u16 = 3;
const DUP2: u16 = 33;
const DUP3: u16 = 292;
const CLOSE_RANGE: u16 = 436;
const CLONE: u16 = 56;
const FORK: u16 = 57;
const WAIT4: u16 = 61;
const WAITID: u16 = 247;
const PRCTL: u16 = 157;
const UNSHARE: u16 = 272;
const SECCOMP: u16 = 317;

/// Calls that a placeholder would answer: `fstat`, `dup`, `dup2`, `fcntl`, `fchdir`, `fstatfs`,
/// `dup3`.
const ASKERS: [u16; 7] = [5, 32, DUP2, 72, 81, 138, DUP3];

/// Calls that return a new descriptor, by number.
const OPENERS: &[(u16, OpenCall)] = &[
    (2, OpenCall::Open),
    (32, OpenCall::Dup),
    (41, OpenCall::Socket),
    (43, OpenCall::Accept),
    (85, OpenCall::Creat),
    (213, OpenCall::Epoll),
    (253, OpenCall::Inotify),
    (257, OpenCall::Open),
    (283, OpenCall::Timerfd),
    (284, OpenCall::Eventfd),
    (288, OpenCall::Accept),
    (290, OpenCall::Eventfd),
    (291, OpenCall::Epoll),
    (294, OpenCall::Inotify),
    (298, OpenCall::Syscall), // perf_event_open
    (300, OpenCall::Fanotify),
    (304, OpenCall::Open), // open_by_handle_at
    (319, OpenCall::Memfd),
    (323, OpenCall::Syscall), // userfaultfd
    (425, OpenCall::Syscall), // io_uring_setup
    (428, OpenCall::Syscall), // open_tree
    (430, OpenCall::Syscall), // fsopen
    (434, OpenCall::Pidfd),
    (437, OpenCall::Open),    // openat2
    (438, OpenCall::Syscall), // pidfd_getfd
    (447, OpenCall::Memfd),   // memfd_secret
];

const WORDS: usize = 8;
/// One bit for each call number that the library handles.
static SEEN: [u64; WORDS] = seen();

const fn seen() -> [u64; WORDS] {
    let mut bits = [0; WORDS];
    let mut index = 0;
    while index < OPENERS.len() {
        let number = OPENERS[index].0 as usize;
        bits[number / 64] |= 1 << (number % 64);
        index += 1;
    }
    let others = [
        CLOSE,
        DUP2,
        DUP3,
        CLOSE_RANGE,
        FORK,
        WAIT4,
        WAITID,
        PRCTL,
        UNSHARE,
        SECCOMP,
    ];
    index = 0;
    while index < others.len() {
        let number = others[index] as usize;
        bits[number / 64] |= 1 << (number % 64);
        index += 1;
    }
    index = 0;
    while index < ASKERS.len() {
        let number = ASKERS[index] as usize;
        bits[number / 64] |= 1 << (number % 64);
        index += 1;
    }
    bits
}

/// Every other call goes straight to the real function, with the stack and all registers unchanged:
/// some of them return twice, or on another stack.
// SAFETY: interposed on purpose. The code changes rax alone, which carries no argument, and leaves
// by a jump.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp rdi, {numbers}",
        "jae 2f",
        "lea rax, [rip + {seen}]",
        "bt qword ptr [rax], rdi",
        "jc 3f",
        // vfork, clone3, and clone in this memory: their children run unnoticed.
        "cmp rdi, 58",
        "je 4f",
        "cmp rdi, 435",
        "je 4f",
        "cmp rdi, 56",
        "jne 2f",
        "test esi, {in_our_memory}",
        "jnz 4f",
        // A copy that starts on this very stack returns like one of `fork`.
        "test rdx, rdx",
        "jz 3f",
        "jmp 2f",
        "4:",
        "mov qword ptr [rip + {alone} + 8], 1",
        "mov qword ptr [rip + {alone}], 0",
        "2:",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz 3f",
        "jmp rax",
        "3:",
        "jmp {watched}",
        numbers = const WORDS * 64,
        seen = sym SEEN,
        real = sym REAL,
        watched = sym watched,
        alone = sym crate::owner::ALONE,
        in_our_memory = const super::fork::CLONE_VM,
    );
}

/// Looks the real function up before the program begins.
pub(crate) fn find() {
    if let Some(real) = SYSCALL.get() {
        REAL.store(real as *mut c_void, Ordering::Relaxed);
    }
}

/// Whether the real function is known.
pub(crate) fn is_found() -> bool {
    !REAL.load(Ordering::Relaxed).is_null()
}

unsafe extern "C" fn watched(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let Some(real) = SYSCALL.get() else {
        return missing().into();
    };
    let fd = |argument: c_long| c_int::try_from(argument).unwrap_or(-1);
    let code = u16::try_from(number).unwrap_or(u16::MAX);
    if ASKERS.contains(&code) && answer::is_gone(fd(a)) {
        return answer::refuse().into();
    }
    if code == CLOSE {
        if let Outcome::Done(result) = close::close(fd(a)) {
            return result.into();
        }
        let ending = ending(fd(a));
        // SAFETY: passes on the caller's arguments.
        let result = unsafe { real(number, a, b, c, d, e, f) };
        ended(fd(a), ending, fd(result));
        return result;
    }
    if let CLONE | FORK | WAIT4 | WAITID = code {
        // SAFETY: passes on the caller's arguments.
        return unsafe { of_child(real, code, [a, b, c, d, e, f]) };
    }
    if code == PRCTL || code == SECCOMP {
        let before = restrain(number, [a, b, c]);
        // SAFETY: passes on the caller's arguments.
        let result = unsafe { real(number, a, b, c, d, e, f) };
        if result == -1 {
            before.restore();
        }
        return result;
    }
    if code == CLOSE_RANGE {
        let [first, last, flags] =
            [a, b, c].map(|word| (word.cast_unsigned() & 0xffff_ffff) as u32);
        if hook::range(first, last, flags) {
            return 0;
        }
    }
    let is_replaced = (code == DUP2 || code == DUP3) && a != b;
    let taken = is_replaced.then(|| protect::claim(fd(b)));
    // SAFETY: passes on the caller's arguments.
    let result = retry_when_full(|| unsafe { real(number, a, b, c, d, e, f) });
    if code == UNSHARE {
        apart::unshared(fd(a), fd(result));
    }
    if let Some(taken) = taken {
        taken.over(result < 0);
        reborn(fd(result), OpenCall::Dup2, fd(a));
    }
    if let Some((_, how)) = OPENERS.iter().find(|(known, _)| *known == code) {
        born(fd(result), *how);
    }
    result
}

/// A call that creates a process, or waits for one.
///
/// # Safety
/// The arguments must be valid for the system call.
unsafe fn of_child(real: Syscall, code: u16, arguments: [c_long; 6]) -> c_long {
    let [a, mut b, mut c, d, e, f] = arguments;
    let (mut status, mut found): (c_int, EndedChild) = (0, EndedChild::NONE);
    // A caller that does not want the status passes a null pointer.
    if code == WAIT4 && b == 0 {
        b = &raw mut status as c_long;
    } else if code == WAITID && c == 0 {
        c = &raw mut found as c_long;
    }
    // SAFETY: guaranteed by the caller, except for a local to write to.
    let result = unsafe { real(code.into(), a, b, c, d, e, f) };
    let pid = c_int::try_from(result).unwrap_or(-1);
    match code {
        WAIT4 if pid > 0 => {
            // SAFETY: the call returned a child, so its status was written.
            collected(pid, unsafe { (b as *const c_int).read() });
        }
        WAITID if pid == 0 => {
            let options = c_int::try_from(d).unwrap_or(0);
            // SAFETY: the call succeeded, so it wrote there.
            unsafe { &*(c as *const EndedChild) }.collected(options);
        }
        CLONE | FORK => {
            started(pid);
        }
        _ => {}
    }
    result
}
