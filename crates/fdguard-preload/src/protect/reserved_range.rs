//! A reserved range of numbers for files that must not be hit, away from those of sockets.
//!
//! The kernel returns the lowest free number, so such a file is duplicated to a high number and the
//! low one is closed. A close drops every POSIX lock that the process holds on the file, so this is
//! done only for the first descriptor of a file. For further ones all low numbers are occupied for
//! a moment, and the kernel itself returns a high one. Only one thread at a time does either,
//! because another could take a lock in between. A file opened for reading stays where it is, since
//! nothing can be written to it by mistake.

#![expect(unsafe_code, reason = "reads a path of the program")]

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::{glob, kernel, placeholder, room};
use crate::{errno, lock, owner, start, sys};

/// File name patterns, separated by `:`.
const SHIELD_NAME: &CStr = c"FDGUARD_SHIELD";
/// Where the reserved range begins in a table of the usual size.
const FLOOR: u32 = 512;
/// The most files whose descriptors are remembered; further ones stay where they are.
const FILES: usize = 256;
const ROOM: usize = 4096;
const PAGE: usize = 4096;
/// The most yields while waiting for another thread that does the same.
const PATIENCE: u32 = 1000;
const O_ACCMODE: c_int = 3;
const O_RDONLY: c_int = 0;
const O_CLOEXEC: c_int = 0o2_000_000;
const O_PATH: c_int = 0o10_000_000;

/// Suffixes of databases, and of the files beside them.
const ENDINGS: [&[u8]; 9] = [
    b".db",
    b".db3",
    b".sqlite",
    b".sqlite3",
    b".sqlitedb",
    b".s3db",
    b"-wal",
    b"-shm",
    b"-journal",
];

/// An open file of this kind.
struct File {
    /// Number in the upper half, generation in the lower; 0 if there is none.
    which: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
}

static ALL: [File; FILES] = [const {
    File {
        which: AtomicU64::new(0),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
    }
}; FILES];
/// The requested patterns.
static SHIELDS: Shields = Shields(UnsafeCell::new([0; ROOM]));
static SHIELDS_LENGTH: AtomicUsize = AtomicUsize::new(0);
/// Whether a thread has opened such a file and not remembered it yet.
static IS_BUSY: AtomicU32 = AtomicU32::new(0);
/// Whether there were more files than can be remembered: then none is moved any more.
static IS_FULL: AtomicU32 = AtomicU32::new(0);

/// Not on the stack: a signal handler may have very little of it.
struct Shields(UnsafeCell<[u8; ROOM]>);

// SAFETY: written before protection begins, and only read from then on.
unsafe impl Sync for Shields {}

/// Reads the patterns. Called before protection begins.
pub(super) fn reserve() {
    SHIELDS_LENGTH.store(0, Ordering::Release);
    // SAFETY: without protection and without a length no other code reads it.
    let room = unsafe { &mut *SHIELDS.0.get() };
    let length = start::setting(SHIELD_NAME, room).map_or(0, <[u8]>::len);
    SHIELDS_LENGTH.store(length, Ordering::Release);
}

fn shields() -> &'static [u8] {
    let length = SHIELDS_LENGTH.load(Ordering::Acquire);
    // SAFETY: it is no longer written once it has a length.
    let room = unsafe { &*SHIELDS.0.get() };
    room.get(..length).unwrap_or(&[])
}

/// The first number of the reserved range.
fn floor() -> u32 {
    FLOOR.min(room::wall() / 2)
}

/// Whether a number is in the reserved range.
pub(super) fn is_high(fd: c_int) -> bool {
    u32::try_from(fd).is_ok_and(|fd| fd >= floor())
}

pub(super) fn first_byte(path: usize) -> u8 {
    // SAFETY: the kernel has just read there.
    unsafe { (path as *const u8).read() }
}

/// Opens a file with `open`, and gives it a number in the reserved range if its name matches.
#[inline]
pub(crate) fn place(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    open: impl Fn() -> c_int,
) -> c_int {
    let is_written = flags & O_ACCMODE != O_RDONLY && flags & O_PATH == 0;
    if !super::is_on() || !is_written {
        return open();
    }
    written(dir, path as usize, flags, &open)
}

#[cold]
#[inline(never)]
fn written(dir: c_int, path: usize, flags: c_int, open: &dyn Fn() -> c_int) -> c_int {
    let is_full = IS_FULL.load(Ordering::Relaxed) != 0;
    if is_full || !is_named(path) || !owner::is_here() || !begin_alone() {
        return open();
    }
    let known = kernel::file_at(dir, path).filter(|file| is_held(*file));
    let fd = if known.is_some() {
        open_above(open)
    } else {
        moved(open(), flags & O_CLOEXEC != 0)
    };
    if let Ok(number) = u32::try_from(fd)
        && let Some(file) = sys::file(number)
    {
        remember(number, file);
    }
    IS_BUSY.store(0, Ordering::SeqCst);
    fd
}

fn begin_alone() -> bool {
    for _ in 0..PATIENCE {
        if IS_BUSY.swap(1, Ordering::SeqCst) == 0 {
            return true;
        }
        kernel::give_way();
    }
    false
}

/// Moves the file to a number in the reserved range, if one is free and moving is safe.
fn moved(low: c_int, is_cloexec: bool) -> c_int {
    let file = u32::try_from(low).ok().and_then(sys::file);
    // It may have got this name since, and be open under another.
    if is_high(low) || file.is_none_or(is_held) {
        return low;
    }
    let error = errno::load();
    let least = c_int::try_from(floor()).unwrap_or(c_int::MAX);
    let Some(high) = kernel::copy(low, least, is_cloexec) else {
        return low;
    };
    let is_below_wall = high.unsigned_abs() < room::wall();
    kernel::close(if is_below_wall { low } else { high });
    errno::store(error);
    if is_below_wall { high } else { low }
}

/// Opens while all low numbers are occupied.
fn open_above(open: &dyn Fn() -> c_int) -> c_int {
    let mut taken = NumberBits([0; 16]);
    let is_full = placeholder::with(|stone| {
        while let Some(fd) = kernel::copy(stone, 3, true) {
            if is_high(fd) {
                kernel::close(fd);
                return true;
            }
            taken.add(fd);
        }
        false
    });
    let fd = if is_full == Some(true) {
        open()
    } else {
        taken.free();
        return open();
    };
    let error = errno::load();
    taken.free();
    errno::store(error);
    fd
}

/// Numbers below 1024, one bit each.
struct NumberBits([u64; 16]);

impl NumberBits {
    fn add(&mut self, fd: c_int) {
        let fd = fd.unsigned_abs();
        if let Some(word) = self.0.get_mut((fd / 64) as usize) {
            *word |= 1 << (fd % 64);
        }
    }

    /// Frees them, neighbours together.
    fn free(&self) {
        let is_taken = |fd: u32| {
            let word = self.0.get((fd / 64) as usize);
            word.is_some_and(|word| word >> (fd % 64) & 1 == 1)
        };
        let mut fd = 0;
        while fd < 1024 {
            let first = fd;
            while is_taken(fd) {
                fd += 1;
            }
            if fd > first && !kernel::close_range(first, fd - 1, 0) {
                for one in first..fd {
                    kernel::close(one.cast_signed());
                }
            }
            fd += 1;
        }
    }
}

/// Whether a descriptor of this file may be open, or have a lock.
fn is_held((device, inode): (u64, u64)) -> bool {
    let is_it = |file: &File| {
        file.inode.load(Ordering::Relaxed) == inode
            && file.device.load(Ordering::Relaxed) == device
            && !is_over(file.which.load(Ordering::Relaxed))
    };
    ALL.iter().any(is_it) || lock::is_locked(device, inode)
}

/// Whether the remembered descriptor was closed since. One that is being opened has a generation
/// that is still to come.
fn is_over(which: u64) -> bool {
    let (fd, turn) = ((which >> 32) as u32, (which & 0xffff_ffff) as u32);
    let now = start::current().map_or(turn, |mapping| mapping.turn(&start::GROUND, fd));
    which == 0 || now.wrapping_sub(turn).cast_signed() > 0
}

/// Remembers a descriptor that is about to be recorded as open.
fn remember(fd: u32, (device, inode): (u64, u64)) {
    let Some(mapping) = start::current() else {
        return;
    };
    let now = mapping.turn(&start::GROUND, fd);
    let turn = now.wrapping_add(1 + now % 2);
    let mut places = ALL.iter();
    let free = places.find(|file| is_over(file.which.load(Ordering::Relaxed)));
    let Some(place) = free else {
        IS_FULL.store(1, Ordering::Relaxed);
        return;
    };
    place.device.store(device, Ordering::Relaxed);
    place.inode.store(inode, Ordering::Relaxed);
    let which = u64::from(fd) << 32 | u64::from(turn);
    place.which.store(which, Ordering::Release);
}

/// In a forked child: the same descriptors, with new generations.
pub(super) fn forked() {
    IS_BUSY.store(0, Ordering::Relaxed);
    let Some(mapping) = start::current() else {
        return;
    };
    for place in &ALL {
        let which = place.which.load(Ordering::Relaxed);
        if which != 0 {
            let turn = mapping.turn(&start::GROUND, (which >> 32) as u32);
            let which = which & !0xffff_ffff | u64::from(turn);
            place.which.store(which, Ordering::Relaxed);
        }
    }
}

/// Whether a path names a database, or matches a requested pattern.
fn is_named(path: usize) -> bool {
    let Some(path) = read(path) else {
        return false;
    };
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
        return true;
    }
    let mut patterns = shields().split(|byte| *byte == b':');
    patterns.any(|pattern| {
        let whole = if pattern.contains(&b'/') { path } else { name };
        !pattern.is_empty() && glob::matches(pattern, whole)
    })
}

/// A path passed by the program, which may be invalid: only memory that the kernel can read is
/// read.
fn read<'a>(start: usize) -> Option<&'a [u8]> {
    for length in 0..ROOM {
        let at = start.checked_add(length)?;
        if (length == 0 || at % PAGE == 0) && (start == 0 || !sys::is_readable(at)) {
            return None;
        }
        if first_byte(at) == 0 {
            // SAFETY: all of it was just read; the caller keeps it for the call that is about to be
            // made.
            return Some(unsafe { core::slice::from_raw_parts(start as *const u8, length) });
        }
    }
    None
}
