//! Lists of a fixed size in memory of their own, which the tracer reads.

#![expect(unsafe_code, reason = "memory that is mapped and unmapped")]

use fdguard_wire::JavaList;

use crate::sys;

const MMAP: usize = 9;
const MUNMAP: usize = 11;
const MADVISE: usize = 28;
const READ_WRITE: usize = 3;
const PRIVATE_ANONYMOUS: usize = 0x22;
const NO_RESERVE: usize = 0x4000;
const FIXED_NO_REPLACE: usize = 0x10_0000;
/// No core dump has it, and no forked child.
const ADVICE: [usize; 2] = [16, 10];
pub(super) const PAGE: usize = 4096;

/// New memory, at this place if it is not 0; `None` if the kernel refuses it.
pub(super) fn map(place: usize, bytes: usize) -> Option<usize> {
    let fixed = if place == 0 { 0 } else { FIXED_NO_REPLACE };
    let flags = PRIVATE_ANONYMOUS | NO_RESERVE | fixed;
    // SAFETY: a new mapping that replaces no other.
    let start = unsafe { sys::call(MMAP, [place, bytes, READ_WRITE, flags, usize::MAX, 0]) };
    let start = usize::try_from(start).ok()?;
    if place != 0 && start != place {
        unmap(start, bytes);
        return None;
    }
    for advice in ADVICE {
        // SAFETY: advice about memory of this module's own.
        let _ = unsafe { sys::call(MADVISE, [start, bytes, advice, 0, 0, 0]) };
    }
    Some(start)
}

/// Returns memory that nothing uses any more.
pub(super) fn unmap(start: usize, bytes: usize) {
    // SAFETY: callers pass what `map` returned.
    let _ = unsafe { sys::call(MUNMAP, [start, bytes, 0, 0, 0, 0]) };
}

/// A list that grows up to a limit. Its memory counts only as far as it is used.
pub(super) struct Room<T: Copy> {
    start: *mut T,
    count: usize,
    most: usize,
}

impl<T: Copy> Room<T> {
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let most = bytes / size_of::<T>().max(1);
        let start = map(0, bytes.max(PAGE))? as *mut T;
        Some(Self {
            start,
            count: 0,
            most,
        })
    }

    /// Adds one at the end; `false` if there is no room.
    pub(super) fn push(&mut self, item: T) -> bool {
        self.set(self.count, item)
    }

    /// Writes one, and makes the list as long as needed; what is between is zero.
    pub(super) fn set(&mut self, index: usize, item: T) -> bool {
        if index >= self.most {
            return false;
        }
        // SAFETY: within the mapping.
        let place = unsafe { self.start.add(index) };
        // SAFETY: as above.
        unsafe { place.write(item) };
        self.count = self.count.max(index + 1);
        true
    }

    pub(super) fn get(&self, index: usize) -> Option<T> {
        if index >= self.count {
            return None;
        }
        // SAFETY: within what was written, or zero.
        let place = unsafe { self.start.add(index) };
        // SAFETY: as above.
        Some(unsafe { place.read() })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn list(&self) -> JavaList {
        JavaList {
            start: self.start as u64,
            count: self.count as u64,
        }
    }
}

impl<T: Copy> Drop for Room<T> {
    fn drop(&mut self) {
        let bytes = self.most.saturating_mul(size_of::<T>()).max(PAGE);
        unmap(self.start as usize, bytes);
    }
}
