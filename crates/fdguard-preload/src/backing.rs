//! Which parts of the mapping are backed by memory.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fdguard_wire::{Area, TableMapping};

use crate::sys;

/// Memory is requested in pieces of this size.
const PIECE: usize = 1 << 12;
const BITS: usize = 64;
const WORDS: usize = TableMapping::size().div_ceil(PIECE * BITS);

/// The pieces that are known to be backed.
#[derive(Debug)]
pub(crate) struct Backing {
    start: AtomicUsize,
    backed: [AtomicU64; WORDS],
}

impl Backing {
    pub(crate) const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            backed: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// For another mapping: no piece is known to be backed.
    pub(crate) fn reset(&self, start: usize) {
        for word in &self.backed {
            word.store(0, Ordering::Relaxed);
        }
        self.start.store(start, Ordering::Release);
    }

    fn is_piece_backed(&self, piece: usize) -> bool {
        let Some(word) = self.backed.get(piece / BITS) else {
            return false;
        };
        let bit = 1 << (piece % BITS);
        if word.load(Ordering::Relaxed) & bit != 0 {
            return true;
        }
        let from = piece * PIECE;
        let bytes = PIECE.min(TableMapping::size().saturating_sub(from));
        let start = self.start.load(Ordering::Acquire);
        let result = sys::populate(start + from, bytes);
        // Older kernels allocated all of it at the start.
        let is_there = result == 0 || sys::is_unknown_advice(result);
        // Of a mapping that was replaced meanwhile this says nothing.
        if is_there && self.start.load(Ordering::Acquire) == start {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        is_there
    }
}

impl Backing {
    /// The pieces known to be backed now, to be kept across [`Backing::reset`].
    pub(crate) fn known(&self) -> BackedPieces {
        let mut known = BackedPieces([0; WORDS]);
        for (word, from) in known.0.iter_mut().zip(&self.backed) {
            *word = from.load(Ordering::Relaxed);
        }
        known
    }
}

/// The pieces of a mapping that were known to be backed.
#[derive(Debug)]
pub(crate) struct BackedPieces([u64; WORDS]);

impl Area for BackedPieces {
    fn is_backed(&self, offset: usize, bytes: usize) -> bool {
        pieces(offset, bytes, |piece| {
            let word = self.0.get(piece / BITS).copied().unwrap_or(0);
            word & 1 << (piece % BITS) != 0
        })
    }
}

/// Whether `is_it` holds for every piece that these bytes touch.
#[inline]
fn pieces(offset: usize, bytes: usize, is_it: impl Fn(usize) -> bool) -> bool {
    let last = offset.saturating_add(bytes.saturating_sub(1)) / PIECE;
    let mut piece = offset / PIECE;
    while piece <= last {
        if !is_it(piece) {
            return false;
        }
        piece += 1;
    }
    true
}

impl Area for Backing {
    fn is_backed(&self, offset: usize, bytes: usize) -> bool {
        pieces(offset, bytes, |piece| self.is_piece_backed(piece))
    }

    #[inline]
    fn is_known(&self, offset: usize, bytes: usize) -> bool {
        pieces(offset, bytes, |piece| {
            let word = self.backed.get(piece / BITS);
            word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (piece % BITS) != 0)
        })
    }
}
