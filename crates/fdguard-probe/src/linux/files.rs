//! The few file operations that the probe uses.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

use fdguard_proc::ascii::decimal;

const PROC_SUPER_MAGIC: i64 = 0x9fa0;
const MQUEUE_MAGIC: i64 = 0x1980_0202;

/// Opens a directory for listing and as a base.
pub(super) fn open_dir_at(base: impl AsFd, path: impl Arg) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(base, path, flags, Mode::empty())
}

/// Opens a directory only as a base: needs no permission to list it.
pub(super) fn open_base_at(base: impl AsFd, path: impl Arg) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(base, path, flags, Mode::empty())
}

/// Reads a whole small file into `buffer`, which grows if necessary and is reused between calls.
pub(super) fn read_into(base: impl AsFd, path: impl Arg, buffer: &mut Vec<u8>) -> Result<&[u8]> {
    let file = rustix::fs::openat(base, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    read_all(file.as_fd(), buffer)
}

fn read_all<'b>(file: BorrowedFd<'_>, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
    if buffer.is_empty() {
        buffer.resize(4096, 0);
    }
    let mut length = 0;
    loop {
        let read = rustix::io::read(file, &mut buffer[length..])?;
        length += read;
        // The kernel produces these texts in one piece: a short read is the end.
        if read == 0 || length < buffer.len() {
            return Ok(&buffer[..length]);
        }
        buffer.resize(buffer.len() * 2, 0);
    }
}

/// The same, for callers that need it once.
pub(super) fn read(base: impl AsFd, path: impl Arg) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    let length = read_into(base, path, &mut buffer)?.len();
    buffer.truncate(length);
    Ok(buffer)
}

/// Reads a text that the kernel produces in pieces, as it does for many lines (`maps`, `locks`):
/// only an empty read is the end.
pub(super) fn read_pieces(base: impl AsFd, path: impl Arg) -> Result<Vec<u8>> {
    let file = open_file_at(base, path)?;
    let mut bytes = Vec::new();
    let mut piece = vec![0; 1 << 14];
    loop {
        match rustix::io::read(&file, &mut piece[..]) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A link's text.
pub(super) fn read_link(base: impl AsFd, path: impl Arg) -> Result<Vec<u8>> {
    rustix::fs::readlinkat(base, path, Vec::new()).map(std::ffi::CString::into_bytes)
}

/// The numeric names of a directory, read piece by piece, so that work on the first can begin
/// before the last is known.
pub(super) struct Listing<'a> {
    entries: RawDir<'a, BorrowedFd<'a>>,
}

impl<'a> Listing<'a> {
    /// A listing from the start, through this buffer.
    pub(super) fn of(dir: BorrowedFd<'a>, buffer: &'a mut [MaybeUninit<u8>]) -> Result<Self> {
        rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0))?;
        Ok(Self {
            entries: RawDir::new(dir, buffer),
        })
    }

    /// Adds up to `most` names to the list; none at the end.
    pub(super) fn take(&mut self, most: usize, list: &mut Vec<u32>) -> Result<()> {
        let full = list.len() + most;
        while list.len() < full {
            let Some(entry) = self.entries.next() else {
                break;
            };
            list.extend(number(entry?.file_name().to_bytes()));
        }
        Ok(())
    }
}

/// Replaces the list with the next names of a listing that several threads share; `false` at its
/// end.
pub(super) fn take_shared(
    listing: &Mutex<Listing<'_>>,
    most: usize,
    list: &mut Vec<u32>,
) -> Result<bool> {
    list.clear();
    let mut listing = listing.lock().unwrap_or_else(PoisonError::into_inner);
    listing.take(most, list)?;
    Ok(!list.is_empty())
}

/// A number as the kernel writes it: `007` is another name.
fn number(name: &[u8]) -> Option<u32> {
    let padded = name.len() > 1 && name[0] == b'0';
    decimal(name)
        .filter(|_| !padded)
        .and_then(|number| u32::try_from(number).ok())
}

/// The numeric names of a directory, ascending.
pub(super) fn numbers(dir: BorrowedFd<'_>) -> Result<Vec<u32>> {
    let mut buffer = vec![MaybeUninit::uninit(); 1 << 15];
    let mut found = Vec::new();
    Listing::of(dir, &mut buffer)?.take(usize::MAX / 2, &mut found)?;
    // The kernel lists in order; a simulated tree may not.
    if !found.is_sorted() {
        found.sort_unstable();
    }
    Ok(found)
}

/// The number of one of fdguard's descriptors, to exclude it from the report.
pub(super) fn number_of(file: &OwnedFd) -> u32 {
    file.as_raw_fd().cast_unsigned()
}

/// The size of an open file or directory; 0 if unknown.
pub(super) fn size_of(file: impl AsFd) -> u64 {
    rustix::fs::fstat(file).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
}

/// Whether a directory is on the kernel's proc file system.
pub(super) fn is_procfs(dir: impl AsFd) -> bool {
    rustix::fs::fstatfs(dir).is_ok_and(|stat| stat.f_type == PROC_SUPER_MAGIC)
}

/// Whether a file is a POSIX message queue.
pub(super) fn is_mqueue(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|stat| stat.f_type == MQUEUE_MAGIC)
}

/// Whether an error means that the thing is gone.
pub(super) fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::SRCH)
}

/// Whether an error means that permission is missing.
pub(super) fn is_denied(error: Errno) -> bool {
    matches!(error, Errno::ACCESS | Errno::PERM)
}

/// Whether an error is fdguard's own lack of resources, which says nothing about the target.
pub(super) fn is_ours(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

/// Opens a file for reading.
pub(super) fn open_file_at(base: impl AsFd, path: impl Arg) -> Result<OwnedFd> {
    rustix::fs::openat(base, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}
