//! Leases and locks of open files: the calls of `fcntl` that rustix does not have.
#![expect(
    unsafe_code,
    reason = "no safe wrapper takes leases or locks of open files"
)]

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

/// Which signal tells of a broken lease; `libc` does not have it. From the kernel's asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;

fn outcome(code: libc::c_int) -> Result<libc::c_int, Errno> {
    if code == -1 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
    }
    Ok(code)
}

/// Takes a read lease: refused while anybody can write. When a writer comes later we are told by SIGURG, which does nothing
/// where nobody waits for it; the default, SIGIO, would end us.
pub(crate) fn lease(file: impl AsFd) -> Result<(), Errno> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed for the call; the argument is a number.
    outcome(unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) })?;
    // SAFETY: the same.
    outcome(unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) })?;
    Ok(())
}

/// Gives a lease back.
pub(crate) fn release(file: impl AsFd) -> Result<(), Errno> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed for the call; the argument is a number.
    outcome(unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) })?;
    Ok(())
}

/// Whether the lease is still whole: not when a writer waits for us to let go.
pub(crate) fn has_lease(file: impl AsFd) -> bool {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed for the call, which has no argument.
    outcome(unsafe { libc::fcntl(fd, libc::F_GETLEASE) }).is_ok_and(|kind| kind == libc::F_RDLCK)
}

/// Takes the write lock of an open file, or says at once that another has it.
pub(crate) fn lock(file: impl AsFd) -> Result<(), Errno> {
    set_lock(file, libc::F_WRLCK)
}

/// Gives it back.
pub(crate) fn unlock(file: impl AsFd) -> Result<(), Errno> {
    set_lock(file, libc::F_UNLCK)
}

/// Whether a process or an open file other than this one has a lock on any byte. None is taken. Not known is not locked.
pub(crate) fn is_locked(file: impl AsFd) -> bool {
    let fd = file.as_fd().as_raw_fd();
    let mut whole = all_bytes(libc::F_WRLCK);
    // SAFETY: the descriptor is borrowed for the call; the struct is ours, whole, and outlives it.
    let asked = outcome(unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut whole) });
    asked.is_ok() && libc::c_int::from(whole.l_type) != libc::F_UNLCK
}

fn set_lock(file: impl AsFd, kind: libc::c_int) -> Result<(), Errno> {
    let fd = file.as_fd().as_raw_fd();
    let whole = all_bytes(kind);
    // SAFETY: the descriptor is borrowed for the call; the struct is ours, whole, and outlives it.
    outcome(unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const whole) })?;
    Ok(())
}

fn all_bytes(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: libc::c_short::try_from(kind).unwrap_or_default(),
        l_whence: 0,
        l_start: 0,
        l_len: 0,
        // The kernel asks for 0 where the lock belongs to the open file.
        l_pid: 0,
    }
}
