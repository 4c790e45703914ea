//! The reader of a ring that programs write records into.
#![expect(unsafe_code, reason = "the ring is memory that the kernel shares")]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// The record is being written.
const BUSY: u32 = 1 << 31;
/// The record was given up.
const DISCARDED: u32 = 1 << 30;
/// The length of the record, and where it is in the ring.
const HEADER: usize = 8;

/// The mapped ring: a page with the reader's position, a page with the writers', then the data
/// twice, so that a record at the end is not divided.
#[derive(Debug)]
pub(crate) struct Ring {
    reader: NonNull<u8>,
    writers: NonNull<u8>,
    page: usize,
    size: usize,
}

// SAFETY: the mappings belong to this value alone, and are not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of this many bytes, a power of two.
    pub(crate) fn map(ring: BorrowedFd<'_>, size: u32) -> Result<Self, Errno> {
        let page = rustix::param::page_size();
        let size = usize::try_from(size).or(Err(Errno::INVAL))?;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let reader = map(ring, 0, page, both)?;
        let offset = u64::try_from(page).or(Err(Errno::INVAL))?;
        let writers = match map(ring, offset, page + 2 * size, ProtFlags::READ) {
            Ok(writers) => writers,
            Err(error) => {
                unmap(reader, page);
                return Err(error);
            }
        };
        Ok(Self {
            reader,
            writers,
            page,
            size,
        })
    }

    /// How far the writers are.
    pub(crate) fn written(&self) -> u64 {
        // SAFETY: the writers' position is at the start of their page, which stays mapped.
        let position = unsafe { self.writers.cast::<AtomicU64>().as_ref() };
        position.load(Ordering::Acquire)
    }

    /// Passes on the complete records up to this position, and frees their room.
    pub(crate) fn read(&mut self, end: u64, take: &mut dyn FnMut(&[u8])) {
        self.read_some(end, usize::MAX, take);
    }

    /// The same for this many records at most; returns how many there were.
    pub(crate) fn read_some(
        &mut self,
        end: u64,
        most: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> usize {
        // SAFETY: the reader's position is at the start of its page, which stays mapped.
        let position = unsafe { self.reader.cast::<AtomicU64>().as_ref() };
        let mut at = position.load(Ordering::Relaxed);
        let mut count = 0;
        while at < end && count < most {
            let Some((length, used)) = self.record(at, take) else {
                break;
            };
            debug_assert!(length <= used);
            at += used;
            count += 1;
            position.store(at, Ordering::Release);
        }
        count
    }

    /// Passes on the record at this position; `None` if it is not complete.
    fn record(&self, at: u64, take: &mut dyn FnMut(&[u8])) -> Option<(u64, u64)> {
        let mask = u64::try_from(self.size).ok()? - 1;
        let offset = usize::try_from(at & mask).ok()?;
        // SAFETY: the data begins after the writers' page, and the offset is within it.
        let header = unsafe { self.writers.add(self.page + offset) };
        // SAFETY: records are aligned to eight bytes, and writers change the word atomically.
        let word = unsafe { header.cast::<AtomicU32>().as_ref() };
        let word = word.load(Ordering::Acquire);
        if word & BUSY != 0 {
            return None;
        }
        let length = usize::try_from(word & !(BUSY | DISCARDED)).ok()?;
        let used = (HEADER + length).next_multiple_of(HEADER);
        if used > self.size {
            return None;
        }
        if word & DISCARDED == 0 {
            // SAFETY: the record follows its header, and the data is mapped twice.
            let start = unsafe { header.add(HEADER) };
            // SAFETY: the record is complete, and no writer touches it until the reader's position
            // has passed it, which is after `take`.
            let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), length) };
            take(bytes);
        }
        Some((u64::try_from(length).ok()?, u64::try_from(used).ok()?))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        unmap(self.reader, self.page);
        unmap(self.writers, self.page + 2 * self.size);
    }
}

fn map(
    ring: BorrowedFd<'_>,
    offset: u64,
    length: usize,
    protection: ProtFlags,
) -> Result<NonNull<u8>, Errno> {
    let none = std::ptr::null_mut();
    // SAFETY: the kernel picks an address that is free.
    let mapped =
        unsafe { rustix::mm::mmap(none, length, protection, MapFlags::SHARED, ring, offset) };
    NonNull::new(mapped?.cast()).ok_or(Errno::NOMEM)
}

fn unmap(start: NonNull<u8>, length: usize) {
    // SAFETY: this was mapped by `map` with the same length, and nothing refers to it any more.
    let result = unsafe { rustix::mm::munmap(start.as_ptr().cast(), length) };
    debug_assert!(result.is_ok());
}
