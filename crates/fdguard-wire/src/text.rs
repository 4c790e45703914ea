//! A text of a language frame: its file and function, written once.

use core::sync::atomic::AtomicU64;

/// An entry of the open-addressed table of texts.
#[derive(Debug)]
#[repr(C)]
pub struct TextRecord {
    /// 0 if free.
    pub(crate) hash: AtomicU64,
    /// Index of the first word in the lower half; lengths in bytes of the file and of the function
    /// in 16 bits each. 0 until written.
    pub(crate) place: AtomicU64,
}

impl TextRecord {
    /// A free entry.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            hash: AtomicU64::new(0),
            place: AtomicU64::new(0),
        }
    }
}

impl Default for TextRecord {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) const SIZE: usize = size_of::<TextRecord>();
