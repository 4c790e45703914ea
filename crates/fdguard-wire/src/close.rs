//! The latest closes: who ended which descriptor.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::image::Words;
use crate::mapping::low;

/// One close in the ring.
#[derive(Debug)]
#[repr(C)]
pub struct Close {
    /// Number in the lower half, generation in the upper; generation 0: nobody knew it.
    which: AtomicU64,
    /// Stack of the closer in the lower half, its thread in the upper.
    by: AtomicU64,
    ns: AtomicU64,
    /// The error that it gave, 0 for none, in the lower half; the turn of the ring in the upper.
    result: AtomicU64,
    /// The four before, mixed.
    check: AtomicU64,
}

/// A close as written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseRecord {
    /// The number.
    pub fd: u32,
    /// The how-manieth descriptor of this number; 0 where it had none that we knew.
    pub generation: u32,
    /// The closer's stack.
    pub stack: u32,
    /// The closer's thread.
    pub tid: u32,
    /// When, by the monotonic clock.
    pub ns: u64,
    /// The error that it gave; 0 for none.
    pub errno: u32,
}

fn mixed(words: [u64; 4]) -> u64 {
    let [a, b, c, d] = words;
    a ^ b.rotate_left(13) ^ c.rotate_left(29) ^ d.rotate_left(43) ^ 0x9e37_79b9_7f4a_7c15
}

impl Close {
    /// An empty place.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            which: AtomicU64::new(0),
            by: AtomicU64::new(0),
            ns: AtomicU64::new(0),
            result: AtomicU64::new(0),
            check: AtomicU64::new(0),
        }
    }

    pub(crate) fn write(&self, record: &CloseRecord, turn: u32) {
        let words = [
            u64::from(record.fd) | u64::from(record.generation) << 32,
            u64::from(record.stack) | u64::from(record.tid) << 32,
            record.ns,
            u64::from(record.errno) | u64::from(turn) << 32,
        ];
        self.which.store(words[0], Ordering::Relaxed);
        self.by.store(words[1], Ordering::Relaxed);
        self.ns.store(words[2], Ordering::Relaxed);
        self.result.store(words[3], Ordering::Relaxed);
        self.check.store(mixed(words), Ordering::Release);
    }
}

impl Default for Close {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) const SIZE: usize = size_of::<Close>();

/// A close from its bytes; `None` when the place is empty or being written.
pub(crate) fn read(words: Words<'_>) -> Option<CloseRecord> {
    let all = [words.at(0)?, words.at(1)?, words.at(2)?, words.at(3)?];
    if words.at(4)? != mixed(all) {
        return None;
    }
    let [which, by, ns, result] = all;
    Some(CloseRecord {
        fd: low(which),
        generation: low(which >> 32),
        stack: low(by),
        tid: low(by >> 32),
        ns,
        errno: low(result),
    })
}
