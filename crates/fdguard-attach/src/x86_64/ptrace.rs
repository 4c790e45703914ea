//! The ptrace calls, one function each. The tracer is the thread that seizes.

#![expect(unsafe_code, reason = "ptrace is not in any safe library")]

use std::ffi::c_void;
use std::io;
use std::mem::{MaybeUninit, size_of};

use libc::{c_int, c_long, pid_t};

/// The general registers of a stopped thread.
pub(crate) type Registers = libc::user_regs_struct;

/// The largest extended state: with AMX it has 11 KiB.
pub(crate) const MOST_XSTATE: usize = 64 * 1024;
const NT_X86_XSTATE: usize = 0x202;

/// Why a thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It was interrupted.
    Event,
    /// Its process is stopped as a whole.
    Group,
    /// It enters or leaves a system call.
    Syscall,
    /// It is about to receive this signal.
    Signal(c_int),
    /// It has ended.
    Ended,
}

fn request(kind: libc::c_uint, tid: u32, address: usize, data: usize) -> io::Result<c_long> {
    let tid = pid_t::try_from(tid).map_err(io::Error::other)?;
    let (address, data) = (address as *mut c_void, data as *mut c_void);
    // SAFETY: requests that use the pointers are made by the functions below, which own what they
    // point to; the others take them as numbers.
    let result = unsafe { libc::ptrace(kind, tid, address, data) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Becomes the tracer without stopping the thread. System-call stops are distinguishable from
/// signals, so that none is mistaken for a trap if this process dies.
pub(crate) fn seize(tid: u32) -> io::Result<()> {
    let options = usize::try_from(libc::PTRACE_O_TRACESYSGOOD).unwrap_or(0);
    request(libc::PTRACE_SEIZE, tid, 0, options).map(drop)
}

pub(crate) fn interrupt(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

pub(crate) fn resume(tid: u32, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal_data(signal)).map(drop)
}

/// Resumes until the next entry or exit of a system call.
pub(crate) fn resume_to_syscall(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, 0).map(drop)
}

pub(crate) fn detach(tid: u32, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal_data(signal)).map(drop)
}

fn signal_data(signal: c_int) -> usize {
    usize::try_from(signal).unwrap_or(0)
}

pub(crate) fn registers(tid: u32) -> io::Result<Registers> {
    let mut registers = MaybeUninit::<Registers>::uninit();
    request(
        libc::PTRACE_GETREGS,
        tid,
        0,
        registers.as_mut_ptr() as usize,
    )?;
    // SAFETY: the kernel has filled all of it, or the request had failed.
    Ok(unsafe { registers.assume_init() })
}

pub(crate) fn set_registers(tid: u32, registers: &Registers) -> io::Result<()> {
    let data = std::ptr::from_ref(registers) as usize;
    request(libc::PTRACE_SETREGS, tid, 0, data).map(drop)
}

/// The extended state (x87, SSE, AVX, ...) in the format of `xsave`.
pub(crate) fn xstate(tid: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0_u8; MOST_XSTATE];
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let data = &raw mut vector as usize;
    request(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, data)?;
    bytes.truncate(vector.iov_len);
    Ok(bytes)
}

pub(crate) fn set_xstate(tid: u32, bytes: &mut [u8]) -> io::Result<()> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let data = &raw mut vector as usize;
    request(libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, data).map(drop)
}

pub(crate) fn set_signal_mask(tid: u32, mask: u64) -> io::Result<()> {
    let data = &raw const mask as usize;
    request(libc::PTRACE_SETSIGMASK, tid, size_of::<u64>(), data).map(drop)
}

/// Writes a word, also into code that the process itself cannot write.
pub(crate) fn poke(tid: u32, address: u64, word: u64) -> io::Result<()> {
    let address = usize::try_from(address).map_err(io::Error::other)?;
    let word = usize::try_from(word).map_err(io::Error::other)?;
    request(libc::PTRACE_POKEDATA, tid, address, word).map(drop)
}

/// What has happened to the thread since it was last resumed; `None` while it runs. An end is seen
/// again until [`take_end`].
pub(crate) fn poll_stop(tid: u32) -> io::Result<Option<Stop>> {
    // The kernel shows stops of traced threads whatever was asked for, so one look is for both.
    let look = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
    let Some(seen) = wait(tid, look)? else {
        return Ok(None);
    };
    if seen.is_end() {
        return Ok(Some(Stop::Ended));
    }
    match wait(tid, libc::WSTOPPED) {
        Ok(taken) => Ok(taken.map(|change| stop_of(change.status))),
        // It was killed meanwhile: it is there, and nothing of it is a stop.
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(Some(Stop::Ended)),
        Err(error) => Err(error),
    }
}

/// Lets whoever waits for a thread that has ended know: until then the kernel keeps it for the
/// tracer, and threads that wait for its end go on waiting.
pub(crate) fn take_end(tid: u32) -> io::Result<()> {
    wait(tid, libc::WEXITED).map(drop)
}

/// A change of a thread's state.
struct Change {
    code: c_int,
    /// For a stop a signal, and an event above it.
    status: c_int,
}

impl Change {
    fn is_end(&self) -> bool {
        matches!(
            self.code,
            libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED
        )
    }
}

fn wait(tid: u32, kind: c_int) -> io::Result<Option<Change>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = kind | libc::__WALL | libc::WNOHANG;
    // SAFETY: the information is ours and outlives the call.
    if unsafe { libc::waitid(libc::P_PID, tid, info.as_mut_ptr(), options) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all bytes were zero before the kernel wrote, and its fields are numbers.
    let info = unsafe { info.assume_init() };
    // SAFETY: waitid has filled the fields of a child, or they are zero.
    let pid = unsafe { info.si_pid() };
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    let code = info.si_code;
    Ok((pid != 0).then_some(Change { code, status }))
}

fn stop_of(change: c_int) -> Stop {
    match (change & 0xff, change >> 8) {
        (signal, 0) if signal == libc::SIGTRAP | 0x80 => Stop::Syscall,
        (signal, 0) => Stop::Signal(signal),
        (libc::SIGTRAP, _event) => Stop::Event,
        _stopped => Stop::Group,
    }
}

/// Registers that are all zero.
#[cfg(test)]
pub(crate) fn zeroed() -> Registers {
    // SAFETY: all fields are numbers.
    unsafe { std::mem::zeroed() }
}
