//! A stack, interned by its hash, with an account of what it opened.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::image::Words;
use crate::mapping::low;

/// An entry of the open-addressed table.
#[derive(Debug)]
#[repr(C)]
pub struct StackRecord {
    /// 0 if free.
    hash: AtomicU64,
    /// Index of the first word in the lower half, number of frames in the upper; 0 until they are
    /// written.
    place: AtomicU64,
    /// Descriptors opened from here.
    pub(crate) opened: AtomicU64,
    /// How many of them were closed.
    pub(crate) closed: AtomicU64,
    /// The sum of the open times of those that were closed, since the process began, in nanoseconds
    /// shifted right by [`OPENED_AT_SHIFT`].
    opened_at: AtomicU64,
    /// The sum of their lifetimes, in nanoseconds shifted right by [`LIVED_SHIFT`].
    lived: AtomicU64,
    /// The longest lifetime, in nanoseconds.
    longest: AtomicU64,
    /// When the most recently opened of them was opened, in nanoseconds since the process began.
    youngest: AtomicU64,
}

/// At a resolution of 66 microseconds, the sum has room for a thousand million times in a week.
const OPENED_AT_SHIFT: u32 = 16;
/// Lifetimes are mostly short: a resolution of a microsecond.
const LIVED_SHIFT: u32 = 10;

/// What a stack opened, and what happened to it. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Descriptors opened from there.
    pub opened: u64,
    /// How many of them were closed.
    pub closed: u64,
    /// The average time at which those that were closed had been opened, since the process began. 0
    /// if none was closed.
    pub closed_opened_at: u64,
    /// Their average lifetime.
    pub closed_lived: u64,
    /// The longest lifetime.
    pub closed_longest: u64,
    /// When the most recently opened of them was opened, since the process began.
    pub closed_youngest: u64,
}

impl Account {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let mean = |one: u64, two: u64| {
            let sum = |mean: u64, of: u64| u128::from(mean) * u128::from(of);
            let all = u128::from(self.closed) + u128::from(other.closed);
            let mean = (sum(one, self.closed) + sum(two, other.closed)).checked_div(all);
            mean.and_then(|mean| u64::try_from(mean).ok()).unwrap_or(0)
        };
        Self {
            opened: self.opened.saturating_add(other.opened),
            closed: self.closed.saturating_add(other.closed),
            closed_opened_at: mean(self.closed_opened_at, other.closed_opened_at),
            closed_lived: mean(self.closed_lived, other.closed_lived),
            closed_longest: self.closed_longest.max(other.closed_longest),
            closed_youngest: self.closed_youngest.max(other.closed_youngest),
        }
    }
}

impl StackRecord {
    /// A free entry.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            hash: AtomicU64::new(0),
            place: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            opened_at: AtomicU64::new(0),
            lived: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            youngest: AtomicU64::new(0),
        }
    }

    /// One of its descriptors was closed: `opened_at` since the process began, open for `lived`.
    pub(crate) fn close(&self, opened_at: u64, lived: u64) {
        self.opened_at
            .fetch_add(opened_at >> OPENED_AT_SHIFT, Ordering::Relaxed);
        self.lived
            .fetch_add(lived >> LIVED_SHIFT, Ordering::Relaxed);
        self.youngest.fetch_max(opened_at, Ordering::Relaxed);
        // It is read far more often than it rises.
        if self.longest.load(Ordering::Relaxed) < lived {
            self.longest.fetch_max(lived, Ordering::Relaxed);
        }
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.load(Ordering::Acquire)
    }

    /// Takes a free entry; returns the hash that has it if another writer was faster.
    pub(crate) fn claim(&self, hash: u64) -> Result<(), u64> {
        self.hash
            .compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }

    /// The index of the first of its words; 0 until they are written.
    pub(crate) fn first(&self) -> u32 {
        low(self.place.load(Ordering::Acquire))
    }

    /// The index of the first of its words, and how many there are; none until they are written.
    pub(crate) fn place(&self) -> (u32, u32) {
        let place = self.place.load(Ordering::Acquire);
        (low(place), low(place >> 32))
    }

    pub(crate) fn publish(&self, first: u32, frames: u32) {
        let place = u64::from(first) | u64::from(frames) << 32;
        self.place.store(place, Ordering::Release);
    }
}

impl Default for StackRecord {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) const SIZE: usize = size_of::<StackRecord>();

/// First word, frames, account; `None` for a free entry.
pub(crate) fn read(words: Words<'_>) -> Option<(u32, u32, Account)> {
    if words.at(0)? == 0 {
        return None;
    }
    let place = words.at(1)?;
    let (first, frames) = (low(place), low(place >> 32));
    let closed = words.at(3)?;
    // On average, the shift cuts off half of its range.
    let mean = |sum: u64, shift: u32| {
        let whole = u128::from(sum) << shift;
        let cut = u128::from(closed) << (shift - 1);
        let mean = (whole + cut).checked_div(u128::from(closed));
        mean.and_then(|mean| u64::try_from(mean).ok()).unwrap_or(0)
    };
    let account = Account {
        opened: words.at(2)?,
        closed,
        closed_opened_at: mean(words.at(4)?, OPENED_AT_SHIFT),
        closed_lived: mean(words.at(5)?, LIVED_SHIFT),
        closed_longest: words.at(6)?,
        closed_youngest: words.at(7)?,
    };
    Some((first, frames, account))
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering};
    use std::vec::Vec;

    use super::{Account, StackRecord, read};
    use crate::image::Words;

    fn account(stack: &StackRecord) -> Account {
        let words: [&AtomicU64; 8] = [
            &stack.hash,
            &stack.place,
            &stack.opened,
            &stack.closed,
            &stack.opened_at,
            &stack.lived,
            &stack.longest,
            &stack.youngest,
        ];
        let bytes = words.map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        let bytes: Vec<u8> = bytes.into_iter().flatten().collect();
        read(Words::of(&bytes)).unwrap().2
    }

    #[test]
    fn a_stack_knows_when_what_ended_was_opened_and_how_long_it_lived() {
        const SECOND: u64 = 1_000_000_000;
        let stack = StackRecord::new();
        stack.claim(7).unwrap();
        assert_eq!(account(&stack), Account::default());
        stack.close(SECOND, 2 * SECOND);
        stack.close(3 * SECOND, SECOND / 2);
        let account = account(&stack);
        assert_eq!((account.closed, account.closed_longest), (2, 2 * SECOND));
        assert_eq!(account.closed_youngest, 3 * SECOND);
        assert!(account.closed_opened_at.abs_diff(2 * SECOND) < 1 << 16);
        assert!(account.closed_lived.abs_diff(SECOND + SECOND / 4) < 1 << 10);
        let more = Account {
            opened: 6,
            closed: 6,
            closed_opened_at: 6 * SECOND,
            closed_lived: SECOND,
            closed_longest: 3 * SECOND,
            closed_youngest: 2 * SECOND,
        };
        let both = account.and(more);
        assert_eq!((both.opened, both.closed), (6, 8));
        assert_eq!(both.closed_longest, 3 * SECOND);
        assert_eq!(both.closed_youngest, 3 * SECOND);
        assert!(both.closed_opened_at.abs_diff(5 * SECOND) < 1 << 16);
        assert_eq!(Account::default().and(more), more);
    }
}
