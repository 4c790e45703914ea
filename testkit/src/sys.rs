//! System calls that rustix does not offer, for victims. Each function is one call that returns a
//! descriptor or a value; nothing here keeps state.

#![expect(
    unsafe_code,
    reason = "rustix has no signalfd, fanotify, bpf, perf, io_uring setup, landlock, secret memory, ranged locks, and no write to a stale number, no ptrace, no signal to a thread"
)]

use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::mm::UserfaultfdFlags;
use rustix::thread::UnshareFlags;

/// Moves the process into new namespaces; a new process namespace holds only its children.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    assert!(!flags.contains(UnshareFlags::FILES), "tables stay shared");
    // SAFETY: only UnshareFlags::FILES would put descriptors out of reach; it was ruled out.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// A signalfd for these signal numbers.
pub fn signalfd(signals: &[u8]) -> io::Result<OwnedFd> {
    // The kernel's own mask: one bit a signal, eight bytes.
    let mask: u64 = signals.iter().map(|signal| 1 << (signal - 1)).sum();
    let flags = libc::SFD_CLOEXEC;
    // SAFETY: the kernel reads eight bytes from the mask, which lives until the call returns.
    let result = unsafe { libc::syscall(libc::SYS_signalfd4, -1, &raw const mask, 8_usize, flags) };
    owned(result)
}

/// Sends a signal to one thread of a process.
pub fn signal_thread(pid: u32, thread: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes three numbers and touches no memory of this process.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, pid, thread, signal) };
    (result == 0)
        .then_some(())
        .ok_or_else(io::Error::last_os_error)
}

/// A fanotify group.
pub fn fanotify() -> io::Result<OwnedFd> {
    // SAFETY: takes two numbers and touches no memory of this process.
    owned(unsafe {
        libc::syscall(
            libc::SYS_fanotify_init,
            libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC,
            libc::O_RDONLY,
        )
    })
}

/// Marks a path in a fanotify group.
pub fn fanotify_mark(group: impl AsFd, path: &CStr) -> io::Result<()> {
    // SAFETY: the path ends in a null byte and lives until the call returns.
    done(unsafe {
        libc::fanotify_mark(
            group.as_fd().as_raw_fd(),
            libc::FAN_MARK_ADD,
            libc::FAN_OPEN,
            libc::AT_FDCWD,
            path.as_ptr(),
        )
    })
}

/// An io_uring with room for four entries.
pub fn io_uring() -> io::Result<OwnedFd> {
    // struct io_uring_params: 120 bytes, all zero asks for the defaults.
    let mut params = [0_u64; 15];
    // SAFETY: the kernel reads and writes 120 bytes, the size of the array.
    owned(unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, params.as_mut_ptr()) })
}

/// Registers descriptors with an io_uring, which then holds them without numbers.
pub fn register_files(ring: impl AsFd, files: &[&OwnedFd]) -> io::Result<()> {
    const IORING_REGISTER_FILES: libc::c_uint = 2;
    let numbers: Vec<i32> = files.iter().map(|file| file.as_raw_fd()).collect();
    // SAFETY: the kernel reads as many numbers as the length says.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_fd().as_raw_fd(),
            IORING_REGISTER_FILES,
            numbers.as_ptr(),
            numbers.len(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A software performance counter on the calling thread.
pub fn perf_event() -> io::Result<OwnedFd> {
    // struct perf_event_attr, first version (64 bytes): type 1 is "software", config 0 is
    // "cpu-clock"; the flag word excludes kernel (bit 5) and hypervisor (bit 6).
    let mut attr = [0_u64; 8];
    attr[0] = 1 | 64 << 32;
    attr[5] = 1 << 5 | 1 << 6;
    const CLOEXEC: libc::c_ulong = 8;
    // SAFETY: the kernel reads 64 bytes, as the size member says.
    owned(unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), 0, -1, -1, CLOEXEC) })
}

/// A BPF array map with one element.
pub fn bpf_map() -> io::Result<OwnedFd> {
    const BPF_MAP_CREATE: libc::c_int = 0;
    // union bpf_attr for this command: type (2 is "array"), key size, value size, elements.
    let attr: [u32; 4] = [2, 4, 8, 1];
    // SAFETY: the kernel reads as many bytes as the size says.
    owned(unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_CREATE,
            attr.as_ptr(),
            size_of_val(&attr),
        )
    })
}

/// A loaded BPF program that returns zero.
pub fn bpf_prog() -> io::Result<OwnedFd> {
    const BPF_PROG_LOAD: libc::c_int = 5;
    // r0 = 0; exit
    let code: [u64; 2] = [0xb7, 0x95];
    let license = c"GPL";
    // union bpf_attr: type (1 is "socket filter") and instruction count, code, license.
    let attr: [u64; 6] = [
        1 | 2 << 32,
        code.as_ptr().addr() as u64,
        license.as_ptr().addr() as u64,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads as many bytes as the size says; code and license, whose addresses it
    // contains, live until the call returns.
    owned(unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            attr.as_ptr(),
            size_of_val(&attr),
        )
    })
}

/// A userfaultfd that handles faults of user code only.
pub fn userfaultfd() -> io::Result<OwnedFd> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::from_bits_retain(1);
    // SAFETY: no memory is registered with it.
    unsafe { rustix::mm::userfaultfd(flags) }.map_err(io::Error::from)
}

/// A landlock ruleset without restrictions.
pub fn landlock() -> io::Result<OwnedFd> {
    // struct landlock_ruleset_attr, first version: the handled file accesses, here "execute".
    let handled: u64 = 1;
    let size = size_of_val(&handled);
    // SAFETY: the kernel reads as many bytes as the size says.
    owned(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const handled,
            size,
            0,
        )
    })
}

/// Secret memory.
pub fn secret_memory() -> io::Result<OwnedFd> {
    // SAFETY: takes one number and touches no memory of this process.
    owned(unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) })
}

/// A new message queue; the name begins with a slash.
pub fn message_queue(name: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: all-zero is a valid value of this record of numbers.
    let mut smallest: libc::mq_attr = unsafe { mem::zeroed() };
    smallest.mq_maxmsg = 1;
    smallest.mq_msgsize = 16;
    // SAFETY: the name ends in a null byte; the kernel reads the record during the call.
    owned(unsafe { libc::mq_open(name.as_ptr(), flags, 0o600, &raw mut smallest) }.into())
}

/// Removes the name of a message queue.
pub fn remove_message_queue(name: &CStr) -> io::Result<()> {
    // SAFETY: the name ends in a null byte and lives until the call returns.
    done(unsafe { libc::mq_unlink(name.as_ptr()) })
}

/// Locks `length` bytes from `start` for writing: for the process, or for the open file.
pub fn lock_range(file: impl AsFd, start: i64, length: i64, per_file: bool) -> io::Result<()> {
    // SAFETY: all-zero is a valid value of this record of numbers.
    let mut lock: libc::flock = unsafe { mem::zeroed() };
    lock.l_type = i16::try_from(libc::F_WRLCK).map_err(io::Error::other)?;
    lock.l_whence = i16::try_from(libc::SEEK_SET).map_err(io::Error::other)?;
    lock.l_start = start;
    lock.l_len = length;
    let command = if per_file {
        libc::F_OFD_SETLK
    } else {
        libc::F_SETLK
    };
    // SAFETY: the kernel reads the record, which lives until the call returns.
    done(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw const lock) })
}

/// Writes to a number that the caller does not own, as a program does with a descriptor that was
/// closed under it.
pub fn stale_write(number: u32, bytes: &[u8]) -> io::Result<usize> {
    let number = i32::try_from(number).map_err(io::Error::other)?;
    // SAFETY: the bytes live until the call returns. Which file receives them is what the test
    // checks.
    let written = unsafe { libc::write(number, bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(written).map_err(|_negative| io::Error::last_os_error())
}

/// Takes a read lease on a file that is open for reading only.
pub fn read_lease(file: impl AsFd) -> io::Result<()> {
    // SAFETY: takes numbers and touches no memory of this process.
    done(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) })
}

/// Binds a netlink socket to a port of its own choice.
pub fn bind_netlink(socket: impl AsFd, port: u32) -> io::Result<()> {
    // SAFETY: all-zero is a valid value of this record of numbers.
    let mut address: libc::sockaddr_nl = unsafe { mem::zeroed() };
    address.nl_family = u16::try_from(libc::AF_NETLINK).map_err(io::Error::other)?;
    address.nl_pid = port;
    let size = libc::socklen_t::try_from(size_of_val(&address)).map_err(io::Error::other)?;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads as many bytes as the size says.
    done(unsafe { libc::bind(socket, (&raw const address).cast(), size) })
}

/// The state of a TCP socket as the kernel counts it: 5 is `FIN_WAIT2`, 8 `CLOSE_WAIT`.
pub fn tcp_state(socket: impl AsFd) -> io::Result<u8> {
    let mut state = 0_u8;
    let mut size: libc::socklen_t = 1;
    // SAFETY: the kernel writes at most the one byte that the size allows; the state comes first.
    done(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut state).cast(),
            &raw mut size,
        )
    })?;
    Ok(state)
}

/// Switches the loopback interface on, which is off in a new network namespace.
pub fn raise_loopback() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // `struct ifreq`: a name of 16 bytes, then the flags; 40 bytes in all.
    let mut request = [0_u8; 40];
    request[..2].copy_from_slice(b"lo");
    let up = u16::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    request[16..18].copy_from_slice(&up.to_ne_bytes());
    // SAFETY: the kernel reads 40 bytes, the size of the array.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, request.as_ptr()) })
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let number = i32::try_from(result).map_err(io::Error::other)?;
    // SAFETY: the kernel just returned this number and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Stops a process so that no signal but KILL resumes it, until the calling thread releases it or
/// ends.
pub fn hold(pid: u32) -> io::Result<()> {
    let pid = pid.cast_signed();
    // SAFETY: takes numbers; no memory of the other process is touched.
    checked(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0_usize, 0_usize) })?;
    // SAFETY: as above.
    checked(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0_usize, 0_usize) })?;
    let mut status = 0;
    // SAFETY: the kernel writes a number to `status`, which outlives the call.
    checked(unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) }.into())
}

/// Resumes a process that this thread stopped.
pub fn release(pid: u32) -> io::Result<()> {
    // SAFETY: takes numbers; no memory of the other process is touched.
    checked(unsafe { libc::ptrace(libc::PTRACE_DETACH, pid.cast_signed(), 0_usize, 0_usize) })
}

fn checked(result: libc::c_long) -> io::Result<()> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
