//! A file whose code is mapped: the program, its libraries.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::image::Words;
use crate::mapping::low;

/// A module.
#[derive(Debug)]
#[repr(C)]
pub struct Module {
    start: AtomicU64,
    end: AtomicU64,
    bias: AtomicU64,
    /// First word of the path in the lower half, its length in bytes in the upper; 0 until
    /// everything is written.
    path: AtomicU64,
}

/// A module as written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleRecord<'a> {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The offset added to the file's own addresses.
    pub bias: u64,
    /// Its path; empty if unknown.
    pub path: &'a [u8],
}

impl Module {
    /// A free entry.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            bias: AtomicU64::new(0),
            path: AtomicU64::new(0),
        }
    }

    pub(crate) fn write(&self, start: u64, end: u64, bias: u64) {
        self.end.store(end, Ordering::Relaxed);
        self.bias.store(bias, Ordering::Relaxed);
        self.start.store(start, Ordering::Release);
    }

    pub(crate) fn name(&self, first: u32, bytes: u32) {
        let path = u64::from(first) | u64::from(bytes) << 32;
        self.path.store(path, Ordering::Release);
    }

    /// Whether the address is in it, and the load bias.
    pub(crate) fn bias_of(&self, address: u64) -> Option<u64> {
        let start = self.start.load(Ordering::Acquire);
        let is_inside = start != 0 && (start..self.end.load(Ordering::Relaxed)).contains(&address);
        is_inside.then(|| self.bias.load(Ordering::Relaxed))
    }

    pub(crate) fn is(&self, start: u64, bias: u64) -> bool {
        self.start.load(Ordering::Acquire) == start && self.bias.load(Ordering::Relaxed) == bias
    }
}

impl Default for Module {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) const SIZE: usize = size_of::<Module>();

/// Start, end, bias, first word of the path, its length in bytes; `None` for a free entry.
pub(crate) fn read(words: Words<'_>) -> Option<(u64, u64, u64, u32, u32)> {
    let start = words.at(0)?;
    let path = words.at(3)?;
    (start != 0).then_some((
        start,
        words.at(1)?,
        words.at(2)?,
        low(path),
        low(path >> 32),
    ))
}
