//! System calls made without the C library. They do not set `errno`, are not cancellation points,
//! and never re-enter the library through an interposed function.

#![expect(unsafe_code, reason = "the system call instruction")]

use core::arch::asm;
use core::ffi::{CStr, c_int};

use fdguard_wire::TableMapping;

const WRITE: usize = 1;
const OPEN: usize = 2;
const CLOSE: usize = 3;
const STAT: usize = 4;
const FSTAT: usize = 5;
const MPROTECT: usize = 10;
const FLOCK: usize = 73;
const GETDENTS64: usize = 217;
const PREAD64: usize = 17;
const GETEUID: usize = 107;
const GETEGID: usize = 108;
const POLL: usize = 7;
const MMAP: usize = 9;
const MUNMAP: usize = 11;
const RT_SIGACTION: usize = 13;
const RT_SIGPROCMASK: usize = 14;
const GETSOCKOPT: usize = 55;
const MADVISE: usize = 28;
const NANOSLEEP: usize = 35;
const GETPID: usize = 39;
const EXIT_GROUP: usize = 231;
const FTRUNCATE: usize = 77;
const READLINK: usize = 89;
const RMDIR: usize = 84;
const UNLINK: usize = 87;
const UNLINKAT: usize = 263;
const SIGALTSTACK: usize = 131;
const GETTID: usize = 186;
const CLOCK_GETTIME: usize = 228;
const FALLOCATE: usize = 285;
const PRLIMIT64: usize = 302;

const ENOENT: isize = -2;
const EAGAIN: isize = -11;
const EINVAL: isize = -22;
const ENFILE: isize = -23;
const EMFILE: isize = -24;
const O_WRONLY: usize = 1;
const O_RDWR: usize = 2;
const O_CREAT: usize = 0o100;
const O_EXCL: usize = 0o200;
const O_NONBLOCK: usize = 0o4000;
const O_DIRECTORY: usize = 0o200_000;
const O_NOFOLLOW: usize = 0o400_000;
const O_CLOEXEC: usize = 0o2_000_000;
const PROT_READ_WRITE: usize = 3;
const PROT_READ: usize = 1;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MADV_DONTDUMP: usize = 16;
const MADV_WIPEONFORK: usize = 18;
const NO_SUCH_ADVICE: usize = 0x7fff;
const MADV_POPULATE_WRITE: usize = 23;
const RLIMIT_FSIZE: usize = 1;
const RLIMIT_NOFILE: usize = 7;
const POLLNVAL: i16 = 32;
/// An action that does not exist: no signal set is changed, but the set is read first.
const NO_SUCH_ACTION: usize = 0x7fff;

/// # Safety
/// The caller must own the memory that the kernel reads and writes through the arguments.
pub(crate) unsafe fn call(number: usize, args: [usize; 6]) -> isize {
    let result;
    // SAFETY: the caller guarantees the arguments; the instruction changes rax, rcx and r11 only.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The process as the kernel sees it: in a `vfork` child not the one that owns the memory.
pub(crate) fn process() -> u32 {
    // SAFETY: getpid takes nothing and touches no memory.
    let pid = unsafe { call(GETPID, [0; 6]) };
    u32::try_from(pid).unwrap_or(0)
}

/// The calling thread.
pub(crate) fn thread() -> u32 {
    // SAFETY: gettid takes nothing and touches no memory.
    let tid = unsafe { call(GETTID, [0; 6]) };
    u32::try_from(tid).unwrap_or(0)
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

/// Nanoseconds of a clock: 0 the time of day, 1 the monotonic one. A system call; `real::now` is
/// cheaper.
pub(crate) fn clock(id: usize) -> u64 {
    let mut time = Timespec {
        seconds: 0,
        nanos: 0,
    };
    // SAFETY: the kernel writes one timespec, which is what was passed.
    let _ = unsafe { call(CLOCK_GETTIME, [id, &raw mut time as usize, 0, 0, 0, 0]) };
    nanoseconds(time.seconds, time.nanos)
}

/// Waits so many nanoseconds, less than a second, or until a signal comes.
pub(crate) fn nap(nanos: u64) {
    let time = [0, nanos];
    // SAFETY: the kernel reads two words.
    let _ = unsafe { call(NANOSLEEP, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

/// Seconds and nanoseconds combined.
pub(crate) fn nanoseconds(seconds: i64, nanos: i64) -> u64 {
    let seconds = seconds.unsigned_abs();
    seconds
        .wrapping_mul(1_000_000_000)
        .wrapping_add(nanos.unsigned_abs())
}

/// Whether a byte at this address can be read. The kernel reads a signal set from there, then
/// rejects the unknown action: nothing is changed. Every sandbox allows it, since every C library
/// needs the call.
pub(crate) fn is_readable(address: usize) -> bool {
    let aligned = address & !7;
    // SAFETY: the kernel only reads, and checks the address itself.
    let result = unsafe { call(RT_SIGPROCMASK, [NO_SUCH_ACTION, aligned, 0, 8, 0, 0]) };
    result == EINVAL
}

/// A new file mapped for a [`TableMapping`], or `None`. Its descriptor is closed again at once. It
/// replaces what is at `place`, if that is not 0.
pub(crate) fn new_mapping(path: &CStr, place: usize) -> Option<*mut TableMapping> {
    let size = TableMapping::size();
    // The kernel sends a signal if a file grows beyond this limit.
    if limit(RLIMIT_FSIZE) < size as u64 {
        return None;
    }
    let flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    // SAFETY: the path is a C string that outlives the call.
    let fd = unsafe { call(OPEN, [path.as_ptr() as usize, flags, 0o600, 0, 0, 0]) };
    let fd = usize::try_from(fd).ok()?;
    let mapped = map(fd, size, place);
    // SAFETY: this function opened the descriptor above, and nothing else uses it.
    let _ = unsafe { call(CLOSE, [fd, 0, 0, 0, 0, 0]) };
    mapped
}

fn map(fd: usize, size: usize, place: usize) -> Option<*mut TableMapping> {
    // SAFETY: changes the size of the library's own file.
    let grown = unsafe { call(FTRUNCATE, [fd, size, 0, 0, 0, 0]) };
    if grown != 0 {
        return None;
    }
    let how = if place == 0 {
        MAP_SHARED
    } else {
        MAP_SHARED | MAP_FIXED
    };
    // SAFETY: a new mapping at an address that the kernel chooses replaces no other memory, and
    // callers pass the place of a mapping that is no longer used.
    let start = unsafe { call(MMAP, [place, size, PROT_READ_WRITE, how, fd, 0]) };
    let start = usize::try_from(start).ok().filter(|start| *start != 0)?;
    let populated = populate(start, 4096);
    if populated == EINVAL {
        // Before Linux 5.14: allocate everything at once, or fail.
        // SAFETY: the library's own file.
        let allocated = unsafe { call(FALLOCATE, [fd, 0, 0, size, 0, 0]) };
        if allocated != 0 {
            give_up(start, place);
            return None;
        }
    } else if populated != 0 {
        give_up(start, place);
        return None;
    }
    // SAFETY: only excludes the library's own mapping from core dumps.
    let _ = unsafe { call(MADVISE, [start, size, MADV_DONTDUMP, 0, 0, 0]) };
    Some(start as *mut TableMapping)
}

/// A mapping that cannot be used. In the place of an earlier one a thread may still write.
fn give_up(start: usize, place: usize) {
    let mapping = start as *mut TableMapping;
    if place == 0 {
        unmap(mapping);
    } else {
        replace_mapping(mapping);
    }
}

/// Backs a range of the mapping with memory; returns an error where a write would have killed the
/// program.
pub(crate) fn populate(start: usize, bytes: usize) -> isize {
    // SAFETY: the kernel touches pages of a mapping as a write would, and changes no contents.
    unsafe { call(MADVISE, [start, bytes, MADV_POPULATE_WRITE, 0, 0, 0]) }
}

/// Makes the kernel zero a range of private memory in every forked copy; returns whether it will.
pub(crate) fn wipe_on_fork(start: usize, bytes: usize) -> bool {
    // SAFETY: affects children only, and callers pass pages of the library that hold nothing else;
    // unknown advice changes nothing.
    let advise = |advice| unsafe { call(MADVISE, [start, bytes, advice, 0, 0, 0]) };
    // Emulators that ignore advice accept all of it.
    advise(MADV_WIPEONFORK) == 0 && advise(NO_SUCH_ADVICE) != 0
}

/// Whether this kernel does not know [`populate`]'s advice.
pub(crate) fn is_unknown_advice(result: isize) -> bool {
    result == EINVAL
}

/// Replaces a mapping by empty memory in one step: a thread that still writes there does no harm.
pub(crate) fn replace_mapping(mapping: *mut TableMapping) {
    let (start, size) = (mapping as usize, TableMapping::size());
    let how = MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: callers pass one of the library's mappings; its place stays mapped.
    let _ = unsafe { call(MMAP, [start, size, PROT_READ_WRITE, how, usize::MAX, 0]) };
    // SAFETY: only excludes the library's own mapping from core dumps.
    let _ = unsafe { call(MADVISE, [start, size, MADV_DONTDUMP, 0, 0, 0]) };
}

/// Unmaps a mapping.
pub(crate) fn unmap(mapping: *mut TableMapping) {
    // SAFETY: callers pass one of the library's mappings that is no longer used.
    let _ = unsafe { call(MUNMAP, [mapping as usize, TableMapping::size(), 0, 0, 0, 0]) };
}

fn limit(which: usize) -> u64 {
    let mut limits = [0_u64; 2];
    // SAFETY: the kernel writes two words, which is what was passed.
    let done = unsafe { call(PRLIMIT64, [0, which, 0, limits.as_mut_ptr() as usize, 0, 0]) };
    if done == 0 { limits[0] } else { 0 }
}

/// A new file to write to; the caller must [`close`] it.
pub(crate) fn new_file(path: &CStr) -> Option<usize> {
    let flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    // SAFETY: the path is a C string that outlives the call.
    let fd = unsafe { call(OPEN, [path.as_ptr() as usize, flags, 0o600, 0, 0, 0]) };
    usize::try_from(fd).ok()
}

/// A file to read, or the error; the caller must [`close`] it.
pub(crate) fn open_to_read(path: &CStr) -> Result<usize, isize> {
    let flags = O_CLOEXEC | O_NONBLOCK;
    // SAFETY: the path is a C string that outlives the call.
    let fd = unsafe { call(OPEN, [path.as_ptr() as usize, flags, 0, 0, 0, 0]) };
    match usize::try_from(fd) {
        Ok(fd) => Ok(fd),
        Err(_) => Err(fd),
    }
}

/// Whether this error means that no descriptor number is left.
pub(crate) fn is_full(error: isize) -> bool {
    error == EMFILE || error == ENFILE
}

/// Reads from an offset of a file; returns how many bytes were read.
pub(crate) fn read_at(fd: usize, at: u64, into: &mut [u8]) -> usize {
    let Ok(at) = usize::try_from(at) else {
        return 0;
    };
    let place = into.as_mut_ptr() as usize;
    // SAFETY: the kernel writes at most as many bytes as the buffer has.
    let read = unsafe { call(PREAD64, [fd, place, into.len(), at, 0, 0]) };
    usize::try_from(read).unwrap_or(0)
}

/// The effective user or group.
fn effective(number: usize) -> u64 {
    // SAFETY: both calls take nothing and touch no memory.
    let id = unsafe { call(number, [0; 6]) };
    id.unsigned_abs() as u64
}

/// Mode, user and group of an open file.
fn rights(fd: usize) -> Option<(u64, u64, u64)> {
    // `struct stat`: device, inode, links, then mode and user in one word, the group in the next.
    let mut stat = [0_u64; 18];
    // SAFETY: the kernel writes 144 bytes, the size of `stat`.
    let done = unsafe { call(FSTAT, [fd, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    (done == 0).then_some((stat[3], stat[3] >> 32, stat[4] & 0xffff_ffff))
}

/// Whether a file that only its owner may read can still be read after an exec: further privileges
/// that the process kept are dropped then.
pub(crate) fn is_owned(fd: usize) -> bool {
    let user = effective(GETEUID);
    user == 0 || rights(fd).is_none_or(|(_, owner, _)| owner == user)
}

/// Whether running this file grants the rights of another user or group.
pub(crate) fn is_privileged(fd: usize) -> bool {
    const SET_USER: u64 = 0o4000;
    const SET_GROUP: u64 = 0o2000;
    rights(fd).is_some_and(|(mode, user, group)| {
        let takes_user = mode & SET_USER != 0 && user != effective(GETEUID);
        let takes_group = mode & SET_GROUP != 0 && group != effective(GETEGID);
        takes_user || takes_group
    })
}

/// Writes to a file of the library; returns whether everything was written.
pub(crate) fn write(fd: usize, bytes: &[u8]) -> bool {
    // SAFETY: the kernel reads as many bytes as the slice has.
    let written = unsafe { call(WRITE, [fd, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) };
    usize::try_from(written) == Ok(bytes.len())
}

/// Closes a file of the library.
pub(crate) fn close(fd: usize) {
    // SAFETY: callers pass a descriptor that this module opened for them.
    let _ = unsafe { call(CLOSE, [fd, 0, 0, 0, 0, 0]) };
}

/// The largest size that a file may grow to.
pub(crate) fn file_limit() -> u64 {
    limit(RLIMIT_FSIZE)
}

/// Ends the process.
pub(crate) fn exit(status: c_int) -> ! {
    loop {
        let status = usize::try_from(status & 0xff).unwrap_or(0);
        // SAFETY: does not return.
        let _ = unsafe { call(EXIT_GROUP, [status, 0, 0, 0, 0, 0]) };
    }
}

/// The program's own path; returns its length, 0 if it is unknown.
pub(crate) fn executable(path: &mut [u8]) -> usize {
    link(c"/proc/self/exe", path)
}

/// The target of a link; returns its length, 0 if it is unknown.
pub(crate) fn link(name: &CStr, path: &mut [u8]) -> usize {
    let link = name.as_ptr() as usize;
    // SAFETY: the kernel writes at most as many bytes as the buffer has.
    let bytes = unsafe {
        call(
            READLINK,
            [link, path.as_mut_ptr() as usize, path.len(), 0, 0, 0],
        )
    };
    usize::try_from(bytes).unwrap_or(0)
}

/// One numeric option of a socket; `None` if it has no such option.
pub(crate) fn socket_option(fd: u32, level: usize, option: usize) -> Option<u32> {
    let mut value = 0_u32;
    let mut length = size_of::<u32>();
    let (place, size) = ((&raw mut value) as usize, (&raw mut length) as usize);
    // SAFETY: the kernel writes at most as many bytes as `length` says, which is the size of
    // `value`.
    let result = unsafe { call(GETSOCKOPT, [fd as usize, level, option, place, size, 0]) };
    (result == 0).then_some(value)
}

#[repr(C)]
#[derive(Clone, Copy)]
struct PollFd {
    fd: c_int,
    events: i16,
    revents: i16,
}

/// Whether anything is open at this number.
pub(crate) fn is_open(number: u32) -> bool {
    let mut entry = PollFd {
        fd: c_int::try_from(number).unwrap_or(-1),
        events: 0,
        revents: 0,
    };
    // SAFETY: the kernel reads and writes one entry, and does not wait.
    let done = unsafe { call(POLL, [&raw mut entry as usize, 1, 0, 0, 0, 0]) };
    done >= 0 && entry.revents & POLLNVAL == 0
}

/// Which of the 64 numbers from `first` on are open, one bit each.
pub(crate) fn open_numbers(first: u32) -> u64 {
    let mut fds = [PollFd {
        fd: -1,
        events: 0,
        revents: 0,
    }; 64];
    for (number, entry) in (first..).zip(fds.iter_mut()) {
        entry.fd = c_int::try_from(number).unwrap_or(-1);
    }
    // The kernel rejects more entries than the descriptor limit.
    let count = usize::try_from(limit(RLIMIT_NOFILE)).unwrap_or(64).min(64);
    // SAFETY: the kernel reads and writes as many entries as there are, and does not wait.
    let done = unsafe { call(POLL, [fds.as_mut_ptr() as usize, count, 0, 0, 0, 0]) };
    if done < 0 {
        return 0;
    }
    let mut bits = 0;
    for (bit, entry) in fds.iter().take(count).enumerate() {
        bits |= u64::from(entry.revents & POLLNVAL == 0) << (bit & 63);
    }
    bits
}

/// Reports every open number: the first of 64, and one bit for each. Without `/proc` only the
/// numbers below 1024 are reported.
pub(crate) fn each_open(mut report: impl FnMut(u32, u64)) {
    let flags = O_DIRECTORY | O_CLOEXEC;
    let path = c"/proc/self/fd".as_ptr() as usize;
    // SAFETY: the path is a C string.
    let dir = unsafe { call(OPEN, [path, flags, 0, 0, 0, 0]) };
    let Ok(dir) = usize::try_from(dir) else {
        for first in (0..1024).step_by(64) {
            report(first, open_numbers(first));
        }
        return;
    };
    let mut buffer = [0; 4096];
    let (mut first, mut bits) = (0_u32, 0_u64);
    loop {
        let place = buffer.as_mut_ptr() as usize;
        // SAFETY: the kernel writes at most as many bytes as the buffer has.
        let read = unsafe { call(GETDENTS64, [dir, place, buffer.len(), 0, 0, 0]) };
        let Some(mut entries) = usize::try_from(read)
            .ok()
            .and_then(|read| buffer.get(..read))
        else {
            break;
        };
        if entries.is_empty() {
            break;
        }
        while let Some((number, rest)) = next_entry(entries) {
            entries = rest;
            // The kernel lists them in order. The directory itself is not the program's.
            let Some(fd) = number.filter(|fd| *fd as usize != dir) else {
                continue;
            };
            if fd / 64 * 64 != first {
                report(first, bits);
                (first, bits) = (fd / 64 * 64, 0);
            }
            bits |= 1 << (fd % 64);
        }
    }
    report(first, bits);
    close(dir);
}

/// Opens a directory that is not behind a link.
pub(crate) fn open_dir(path: &CStr) -> Option<usize> {
    let flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    // SAFETY: the path is a C string that outlives the call.
    let fd = unsafe { call(OPEN, [path.as_ptr() as usize, flags, 0, 0, 0, 0]) };
    usize::try_from(fd).ok()
}

/// Reports the names in a directory.
pub(crate) fn each_name(dir: usize, mut report: impl FnMut(&CStr)) {
    let mut buffer = [0; 1024];
    loop {
        let place = buffer.as_mut_ptr() as usize;
        // SAFETY: the kernel writes at most as many bytes as the buffer has.
        let read = unsafe { call(GETDENTS64, [dir, place, buffer.len(), 0, 0, 0]) };
        let read = usize::try_from(read).unwrap_or(0);
        let mut entries = buffer.get(..read).unwrap_or(&[]);
        if entries.is_empty() {
            return;
        }
        while let Some((name, rest)) = next_name(entries) {
            entries = rest;
            if let Ok(name) = CStr::from_bytes_until_nul(name) {
                report(name);
            }
        }
    }
}

/// Removes a file of a directory, if that is possible.
pub(crate) fn remove_file(dir: usize, name: &CStr) {
    // SAFETY: the name is a C string that outlives the call.
    let _removed = unsafe { call(UNLINKAT, [dir, name.as_ptr() as usize, 0, 0, 0, 0]) };
}

/// Removes a file, if that is possible.
pub(crate) fn unlink(path: &CStr) {
    // SAFETY: the path is a C string that outlives the call.
    let _removed = unsafe { call(UNLINK, [path.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

/// Removes an empty directory, if that is possible.
pub(crate) fn remove_dir(path: &CStr) {
    // SAFETY: the path is a C string that outlives the call.
    let _removed = unsafe { call(RMDIR, [path.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

/// The name of the first entry of a directory with what follows it, and the entries after it.
fn next_name(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let length = entries.get(LENGTH..LENGTH + 2)?;
    let length = usize::from(u16::from_ne_bytes(length.try_into().ok()?));
    let (entry, rest) = entries.split_at_checked(length.max(NAME))?;
    Some((entry.get(NAME..)?, rest))
}

/// The number in the name of the first entry of a directory, and the entries after it.
fn next_entry(entries: &[u8]) -> Option<(Option<u32>, &[u8])> {
    let (name, rest) = next_name(entries)?;
    let mut number = None;
    for byte in name.iter().take_while(|byte| **byte != 0) {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10);
        let Some(digit) = digit else {
            return Some((None, rest));
        };
        let before = number.unwrap_or(0_u32);
        number = before.checked_mul(10).map(|tens| tens + u32::from(digit));
    }
    Some((number, rest))
}

/// Makes read-only pages of a module writable; returns whether they are.
pub(crate) fn make_writable(start: usize, bytes: usize) -> bool {
    // SAFETY: callers pass pages of data that the loader made read-only.
    unsafe { call(MPROTECT, [start, bytes, PROT_READ_WRITE, 0, 0, 0]) == 0 }
}

/// Makes them read-only again.
pub(crate) fn make_read_only(start: usize, bytes: usize) {
    // SAFETY: as above; they were read-only before.
    let _ = unsafe { call(MPROTECT, [start, bytes, PROT_READ, 0, 0, 0]) };
}

/// Whether a page can be written to; `None` if the kernel does not say it (before Linux 5.14).
pub(crate) fn is_writable(page: usize) -> Option<bool> {
    let own = [0_u64; 1];
    match populate(page, 4096) {
        0 => Some(true),
        // Either this page cannot be written to, or the kernel does not know the question.
        EINVAL => {
            let here = (&raw const own as usize) & !4095;
            (populate(here, 4096) == 0).then_some(false)
        }
        _ => Some(false),
    }
}

/// Device and inode of the file at a path.
pub(crate) fn file_at(path: &CStr) -> Option<[u64; 2]> {
    let mut stat = [0_u64; 18];
    let place = stat.as_mut_ptr() as usize;
    // SAFETY: a C string, and the kernel writes 144 bytes, the size of `stat`.
    let done = unsafe { call(STAT, [path.as_ptr() as usize, place, 0, 0, 0, 0]) };
    (done == 0).then_some([stat[0], stat[1]])
}

/// Whether this process has more than one thread now, also where that cannot be read.
pub(crate) fn has_threads() -> bool {
    // Of a directory of `/proc`: itself, its name in the parent, and one for each thread.
    const ALONE: u64 = 3;
    const LINKS: usize = 2;
    let mut stat = [0_u64; 18];
    let path = c"/proc/self/task".as_ptr() as usize;
    // SAFETY: a C string, and the kernel writes 144 bytes, the size of `stat`.
    let done = unsafe { call(STAT, [path, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    done != 0 || stat[LINKS] > ALONE
}

/// The lock on a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirLock {
    /// A process holds it.
    Held,
    Free,
    /// There is no such directory.
    Absent,
    /// The kernel does not say it.
    Unknown,
}

/// Asks for the lock on a directory by taking it for a moment.
pub(crate) fn dir_lock(path: &CStr) -> DirLock {
    const EXCLUSIVE_NOW: usize = 2 | 4;
    let flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    // SAFETY: the path is a C string that outlives the call.
    let fd = unsafe { call(OPEN, [path.as_ptr() as usize, flags, 0, 0, 0, 0]) };
    if fd == ENOENT {
        return DirLock::Absent;
    }
    let Ok(fd) = usize::try_from(fd) else {
        return DirLock::Unknown;
    };
    // SAFETY: this function's own descriptor; the call does not wait.
    let locked = unsafe { call(FLOCK, [fd, EXCLUSIVE_NOW, 0, 0, 0, 0]) };
    // This also releases the lock.
    close(fd);
    match locked {
        0 => DirLock::Free,
        EAGAIN => DirLock::Held,
        _ => DirLock::Unknown,
    }
}

/// Runs `work` while the calling thread receives no signals.
pub(crate) fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    const BLOCK: usize = 0;
    const SET: usize = 2;
    let (all, mut before) = (u64::MAX, 0_u64);
    let (new, old) = (&raw const all as usize, &raw mut before as usize);
    // SAFETY: the kernel reads one set and writes one.
    let _ = unsafe { call(RT_SIGPROCMASK, [BLOCK, new, old, 8, 0, 0]) };
    let result = work();
    // SAFETY: restores the thread's own set.
    let _ = unsafe { call(RT_SIGPROCMASK, [SET, old, 0, 8, 0, 0]) };
    result
}

/// What the process does with a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalAction {
    /// The handler's address; 0 for the default, 1 for ignored.
    pub(crate) handler: usize,
    pub(crate) flags: usize,
}

/// What the process does with a signal now.
pub(crate) fn signal_action(signal: c_int) -> Option<SignalAction> {
    // The kernel's `sigaction`: handler, flags, restorer, mask.
    let mut words = [0_usize; 4];
    let into = words.as_mut_ptr() as usize;
    let signal = usize::try_from(signal).ok()?;
    // SAFETY: nothing is set, and the kernel writes four words.
    let done = unsafe { call(RT_SIGACTION, [signal, 0, into, 8, 0, 0]) };
    let [handler, flags, ..] = words;
    (done == 0).then_some(SignalAction { handler, flags })
}

/// The lower end of the alternate stack that the calling signal handler runs on; `None` on the
/// thread's own stack.
pub(crate) fn alternate_stack() -> Option<usize> {
    const SS_ONSTACK: usize = 1;
    // `stack_t`: start, flags in the lower half of a word, size.
    let mut stack = [0_usize; 3];
    // SAFETY: nothing is set, and the kernel writes three words.
    let done = unsafe { call(SIGALTSTACK, [0, stack.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    (done == 0 && stack[1] & SS_ONSTACK != 0).then_some(stack[0])
}

/// Device and inode of an open regular file.
pub(crate) fn file(fd: u32) -> Option<(u64, u64)> {
    const MODE: usize = 3;
    const KIND: u64 = 0o170_000;
    const REGULAR: u64 = 0o100_000;
    // `struct stat`: device, inode, links, then mode in the lower half of a word.
    let mut stat = [0_u64; 18];
    // SAFETY: the kernel writes 144 bytes, the size of `stat`.
    let done = unsafe { call(FSTAT, [fd as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    let is_regular = stat[MODE] & KIND == REGULAR;
    (done == 0 && is_regular).then_some((stat[0], stat[1]))
}

/// Ends the process at once.
pub(crate) fn abort() -> ! {
    loop {
        // SAFETY: does not return.
        let _ = unsafe { call(EXIT_GROUP, [134, 0, 0, 0, 0, 0]) };
    }
}
