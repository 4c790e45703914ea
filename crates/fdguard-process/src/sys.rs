//! System calls that a forked process without an exec can make: directly, without the C library's
//! locks, caches and handlers.

#![expect(
    unsafe_code,
    reason = "rustix has no clone with a cgroup or without a signal, no close_range, no signalfd and no waitid with usage"
)]

use std::ffi::{CStr, c_char, c_int, c_long};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Pid;

use crate::tree::{Exit, Usage};

/// The kernel's set of signals has 64 bits.
const SET: usize = 8;
/// Every signal.
pub(crate) const ALL_SIGNALS: u64 = u64::MAX;
/// No signal.
pub(crate) const NO_SIGNALS: u64 = 0;

/// How a process is forked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForkMode<'fd> {
    /// The signal that its parent gets when it ends. With 0 it is invisible to waits that do not
    /// ask for such children.
    pub(crate) exit_signal: c_int,
    /// The cgroup that it starts in.
    pub(crate) cgroup: Option<BorrowedFd<'fd>>,
}

fn checked(result: c_long) -> Result<c_long, Errno> {
    if result == -1 {
        Err(last_error())
    } else {
        Ok(result)
    }
}

fn last_error() -> Errno {
    let code = io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(code.unwrap_or(libc::EINVAL))
}

/// Forks without the C library, so that no fork handler of the program runs. `None` in the child.
///
/// # Safety
///
/// The child has one thread and a copy of memory in which other threads may have held locks: until
/// it execs or exits it must not allocate, lock, or unwind out of its entry.
pub(crate) unsafe fn fork(birth: ForkMode<'_>) -> Result<Option<u32>, Errno> {
    let pid = match birth.cgroup {
        Some(cgroup) => {
            // SAFETY: a structure of numbers; all zero is valid.
            let mut args: libc::clone_args = unsafe { mem::zeroed() };
            args.flags = 0x2_0000_0000; // CLONE_INTO_CGROUP: too large for the constants of C
            args.exit_signal = u64::from(birth.exit_signal.unsigned_abs());
            args.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
            let size = size_of_val(&args);
            // SAFETY: without CLONE_VM the child runs on its own copy of this stack; the kernel
            // reads `size` bytes of `args`.
            unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size) }
        }
        None => {
            let flags = c_long::from(birth.exit_signal);
            // SAFETY: a clone that shares nothing is a fork; the child runs on its own copy of this
            // stack.
            unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) }
        }
    };
    let pid = checked(pid)?;
    Ok(u32::try_from(pid).ok().filter(|pid| *pid != 0))
}

/// The group of this process; `None` if its leader is outside this pid namespace, because then it
/// has no number here.
pub(crate) fn own_group() -> Option<Pid> {
    // SAFETY: takes nothing and cannot fail.
    Pid::from_raw(unsafe { libc::getpgrp() })
}

/// Ends this process without running any code of the C library.
pub(crate) fn exit(code: c_int) -> ! {
    loop {
        // SAFETY: takes a number and does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, c_long::from(code)) };
    }
}

/// Replaces this process by a program; returns only with an error.
///
/// # Safety
///
/// Both lists must end with a null pointer, and the other pointers must point to C strings.
pub(crate) unsafe fn exec(
    program: &CStr,
    words: &[*const c_char],
    environment: &[*const c_char],
) -> Errno {
    let (words, environment) = (words.as_ptr(), environment.as_ptr());
    // SAFETY: the caller guarantees both lists; the program's name is a C string.
    unsafe { libc::syscall(libc::SYS_execve, program.as_ptr(), words, environment) };
    last_error()
}

/// A descriptor that was open when this process started, made close-on-exec; `None` if it is not
/// open.
pub(crate) fn inherited(number: c_int) -> Option<OwnedFd> {
    // SAFETY: takes numbers; a number that is not open is an error.
    let result = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: it is open, and the caller guarantees that nothing else in this process owns it.
    (result != -1).then(|| unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes these numbers, including the last; or makes them close-on-exec.
pub(crate) fn close_range(first: u32, last: u32, at_exec: bool) -> Result<(), Errno> {
    let flags = if at_exec {
        libc::CLOSE_RANGE_CLOEXEC
    } else {
        0
    };
    // SAFETY: takes three numbers. The caller owns all descriptors of a forked process and uses
    // none of those again.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    checked(result).map(drop)
}

/// A duplicate of a descriptor at this number or above, close-on-exec.
pub(crate) fn copy_above(number: c_int, floor: c_int) -> Result<c_int, Errno> {
    // SAFETY: takes numbers; a number that is not open is an error.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, floor) };
    if copy == -1 {
        Err(last_error())
    } else {
        Ok(copy)
    }
}

/// Makes `target` a duplicate of `source` that an exec closes, whatever it was before; nothing if
/// they are the same.
pub(crate) fn copy_to_marked(source: c_int, target: c_int) -> Result<(), Errno> {
    if source == target {
        return Ok(());
    }
    // SAFETY: takes numbers. Only a child before its exec calls this, and none of its `OwnedFd`s is
    // used again.
    let result = unsafe { libc::syscall(libc::SYS_dup3, source, target, libc::O_CLOEXEC) };
    checked(result).map(drop)
}

/// Makes `target` a duplicate of `source` that survives an exec, whatever it was before.
pub(crate) fn copy_to(source: c_int, target: c_int) -> Result<(), Errno> {
    // SAFETY: takes numbers. Only a child before its exec calls this, and none of its `OwnedFd`s is
    // used again.
    let result = unsafe { libc::syscall(libc::SYS_dup3, source, target, 0) };
    checked(result).map(drop)
}

/// Clears close-on-exec.
pub(crate) fn keep_over_exec(number: c_int) -> Result<(), Errno> {
    // SAFETY: takes numbers; a number that is not open is an error.
    let result = unsafe { libc::fcntl(number, libc::F_SETFD, 0) };
    if result == -1 {
        Err(last_error())
    } else {
        Ok(())
    }
}

/// Writes to a number that may have been moved meanwhile.
pub(crate) fn write(number: c_int, bytes: &[u8]) -> Result<(), Errno> {
    let (start, length) = (bytes.as_ptr(), bytes.len());
    // SAFETY: the kernel reads `length` bytes from `start`, which is a slice of that length.
    let result = unsafe { libc::syscall(libc::SYS_write, number, start, length) };
    checked(result).map(drop)
}

/// Blocks exactly these signals in this thread and returns those that were blocked before.
pub(crate) fn block_signals(signals: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: the kernel reads one set of 64 bits and writes the other.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const signals,
            &raw mut before,
            SET,
        )
    };
    debug_assert_eq!(result, 0, "rt_sigprocmask takes any set");
    before
}

/// Resets every signal to its default action, including those of the C library.
pub(crate) fn forget_handlers() {
    // The kernel's structure has up to 32 bytes, and zeroes mean the default action, no flags and
    // an empty mask.
    let default = [0_u64; 8];
    for signal in 1..=64_i32 {
        // SAFETY: the kernel reads a structure that is no longer than `default`. KILL and STOP are
        // rejected, as they should be.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                ptr::null_mut::<u64>(),
                SET,
            )
        };
    }
}

/// A descriptor that is readable when one of the (blocked) signals is pending.
pub(crate) fn signal_descriptor(signals: u64) -> Result<OwnedFd, Errno> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the kernel reads a set of 64 bits.
    let fd = unsafe { libc::syscall(libc::SYS_signalfd4, -1, &raw const signals, SET, flags) };
    let fd = c_int::try_from(checked(fd)?).map_err(|_too_large| Errno::BADF)?;
    // SAFETY: the kernel just created it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The bit of a signal in a set.
pub(crate) const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Sends a signal to a process that the caller knows to be its unreaped child.
pub(crate) fn signal_child(pid: u32, signal: c_int) -> Result<(), Errno> {
    let pid = c_long::from(pid);
    debug_assert!(pid > 0, "never a group");
    // SAFETY: takes numbers.
    let result = unsafe { libc::syscall(libc::SYS_kill, pid, signal) };
    checked(result).map(drop)
}

/// Sends a signal to the process of a pidfd.
pub(crate) fn signal_pidfd(pidfd: impl AsFd, signal: c_int) -> Result<(), Errno> {
    let pidfd = pidfd.as_fd().as_raw_fd();
    // SAFETY: takes numbers and no structure.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd,
            signal,
            ptr::null_mut::<libc::siginfo_t>(),
            0,
        )
    };
    checked(result).map(drop)
}

/// A child that ended and was reaped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReapedChild {
    pub(crate) pid: u32,
    pub(crate) exit: Exit,
    pub(crate) usage: Usage,
}

/// Reaps one child that has ended: this one, or any. `None` if none has ended yet; `ECHILD` if
/// there is none at all. Children without an exit signal are included.
pub(crate) fn reap(pid: Option<u32>, wait: bool) -> Result<Option<ReapedChild>, Errno> {
    // SAFETY: structures of numbers and pointers that are never dereferenced; all zero is valid.
    let mut told: libc::siginfo_t = unsafe { mem::zeroed() };
    // SAFETY: a structure of numbers; all zero is valid.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    let (kind, id) = pid.map_or((libc::P_ALL, 0), |pid| (libc::P_PID, pid));
    let mut options = libc::WEXITED | libc::__WALL;
    if !wait {
        options |= libc::WNOHANG;
    }
    // SAFETY: the kernel fills both structures, which have its layout.
    let result = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            kind,
            id,
            &raw mut told,
            options,
            &raw mut usage,
        )
    };
    checked(result)?;
    // SAFETY: after waitid these fields hold its result, or the zeroes from before.
    let pid = unsafe { told.si_pid() };
    let Some(pid) = u32::try_from(pid).ok().filter(|pid| *pid != 0) else {
        return Ok(None);
    };
    // SAFETY: as above.
    let status = unsafe { told.si_status() };
    let exit = if told.si_code == libc::CLD_EXITED {
        Exit::Code(u8::try_from(status & 0xff).unwrap_or(u8::MAX))
    } else {
        Exit::Signal(status)
    };
    let usage = Usage {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        peak_memory: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
        memory_kills: None,
    };
    Ok(Some(ReapedChild { pid, exit, usage }))
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros))
}
