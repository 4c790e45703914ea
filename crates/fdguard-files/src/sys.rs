//! System calls that rustix lacks: leases, locks of open file descriptions, and a private
//! descriptor table for a thread.
#![expect(
    unsafe_code,
    reason = "no safe wrapper takes leases or locks of open files, or leaves a table of descriptors"
)]

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

/// Selects the signal for a broken lease; `libc` does not define it. From the kernel's
/// asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;

fn outcome(code: libc::c_int) -> Result<libc::c_int, Errno> {
    if code == -1 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
    }
    Ok(code)
}

/// Takes a read lease: refused while the file has a writer. When a writer appears later, the kernel
/// sends SIGURG, which is ignored by default; the default signal, SIGIO, would terminate the
/// process.
pub(crate) fn lease(file: impl AsFd) -> Result<(), Errno> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed for the call; the argument is a number.
    outcome(unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) })?;
    // SAFETY: the same.
    outcome(unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) })?;
    Ok(())
}

/// Releases a lease.
pub(crate) fn release(file: impl AsFd) -> Result<(), Errno> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed for the call; the argument is a number.
    outcome(unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) })?;
    Ok(())
}

/// Whether the lease is still intact: not if a writer waits for its release.
pub(crate) fn has_lease(file: impl AsFd) -> bool {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed for the call, which has no argument.
    outcome(unsafe { libc::fcntl(fd, libc::F_GETLEASE) }).is_ok_and(|kind| kind == libc::F_RDLCK)
}

/// Takes the write lock of an open file description, or fails immediately if another holds it.
pub(crate) fn lock(file: impl AsFd) -> Result<(), Errno> {
    set_lock(file, libc::F_WRLCK)
}

/// Releases it.
pub(crate) fn unlock(file: impl AsFd) -> Result<(), Errno> {
    set_lock(file, libc::F_UNLCK)
}

/// Whether another process or open file holds a lock on any byte. Takes no lock. Errors count as
/// not locked.
pub(crate) fn is_locked(file: impl AsFd) -> bool {
    let fd = file.as_fd().as_raw_fd();
    let mut whole = all_bytes(libc::F_WRLCK);
    // SAFETY: the descriptor is borrowed for the call; the struct is a local, fully initialized,
    // and outlives it.
    let asked = outcome(unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut whole) });
    asked.is_ok() && libc::c_int::from(whole.l_type) != libc::F_UNLCK
}

fn set_lock(file: impl AsFd, kind: libc::c_int) -> Result<(), Errno> {
    let fd = file.as_fd().as_raw_fd();
    let whole = all_bytes(kind);
    // SAFETY: the descriptor is borrowed for the call; the struct is a local, fully initialized,
    // and outlives it.
    outcome(unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const whole) })?;
    Ok(())
}

fn all_bytes(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: libc::c_short::try_from(kind).unwrap_or_default(),
        l_whence: 0,
        l_start: 0,
        l_len: 0,
        // The kernel requires 0 for a lock of an open file description.
        l_pid: 0,
    }
}

/// Signals that the processor raises for a faulty thread. If blocked, they would terminate the
/// process silently.
const OF_THE_THREAD_ITSELF: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Blocks the process's signals in the calling thread: its handlers run in other threads.
pub(crate) fn block_signals() -> Result<(), Errno> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is a local, and the call initializes all of it.
    outcome(unsafe { libc::sigfillset(set.as_mut_ptr()) })?;
    for signal in OF_THE_THREAD_ITSELF {
        // SAFETY: the set was filled above; the signals are numbers that exist.
        outcome(unsafe { libc::sigdelset(set.as_mut_ptr(), signal) })?;
    }
    // SAFETY: the set is initialized and outlives the call, which keeps no pointer; the old mask is
    // not requested.
    let code =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut()) };
    // This one returns its error instead of setting it.
    if code == 0 {
        Ok(())
    } else {
        Err(Errno::from_raw_os_error(code))
    }
}

/// Gives the calling thread its own empty descriptor table.
///
/// The caller guarantees that its thread is new and that no value in it holds a descriptor of the
/// shared table: from here on, its number would refer to another file.
pub(crate) fn leave_table() -> Result<(), Errno> {
    let (first, last) = (0, libc::c_uint::MAX);
    // SAFETY: the flag makes the table a private copy of this thread before anything in it is
    // closed, so that no descriptor owned by another thread is touched. This thread owns none, by
    // the contract above.
    let code = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            last,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
    outcome(if code == 0 { 0 } else { -1 })?;
    Ok(())
}
