//! A stack, interned by its hash, with the counts of what it opened.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::image::Words;
use crate::mapping::low;

/// An entry of the open-addressed table.
#[derive(Debug)]
#[repr(C)]
pub struct Stack {
    /// 0: free.
    hash: AtomicU64,
    /// First word in the lower half, frames in the upper; 0 until they are written.
    place: AtomicU64,
    /// Descriptors opened from here.
    pub(crate) opened: AtomicU64,
    /// Those of them that ended.
    pub(crate) closed: AtomicU64,
}

impl Stack {
    /// A free place.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            hash: AtomicU64::new(0),
            place: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.load(Ordering::Acquire)
    }

    /// Takes a free place; gives the hash that has it when another was faster.
    pub(crate) fn claim(&self, hash: u64) -> Result<(), u64> {
        self.hash
            .compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }

    /// The first of its words; 0 until they are written.
    pub(crate) fn first(&self) -> u32 {
        low(self.place.load(Ordering::Acquire))
    }

    pub(crate) fn publish(&self, first: u32, frames: u32) {
        let place = u64::from(first) | u64::from(frames) << 32;
        self.place.store(place, Ordering::Release);
    }
}

impl Default for Stack {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) const SIZE: usize = size_of::<Stack>();

/// First word, frames, opened, closed; `None` for a free place.
pub(crate) fn read(words: Words<'_>) -> Option<(u32, u32, u64, u64)> {
    if words.at(0)? == 0 {
        return None;
    }
    let place = words.at(1)?;
    let (first, frames) = (low(place), low(place >> 32));
    Some((first, frames, words.at(2)?, words.at(3)?))
}
