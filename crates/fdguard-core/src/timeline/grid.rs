//! Time as the timeline stores it: rings of buckets, each eight times as wide as the one before.
//!
//! Every series of a timeline shares one grid, so a bucket is three numbers and no time. The finest
//! ring holds the last 128 ticks; the coarsest reaches back four million. Each ring watches its
//! descriptors at two ages of its own scale, so that a leak of one a day and a leak of ten a second
//! are judged by the same code.

use std::collections::VecDeque;

/// Rings of a grid.
pub const RINGS: usize = 6;
/// Buckets of a ring.
pub const BUCKETS: usize = 128;
/// How much wider the buckets of the next ring are.
const WIDER: u64 = 8;
/// Ages at which a descriptor counts as a survivor, in buckets of its ring.
pub const YOUNG: u64 = 4;
/// The same for the stricter judgement.
pub const OLD: u64 = 16;
/// Ages in all rings, which a descriptor passes one by one.
pub(super) const AGES: usize = 2 * RINGS;

/// Width of a ring's buckets, in ticks.
#[must_use]
pub(super) const fn width(ring: usize) -> u64 {
    let mut width = 1;
    let mut i = 0;
    while i < ring {
        width *= WIDER;
        i += 1;
    }
    width
}

/// The age in ticks at which a descriptor enters level `index + 1`.
#[must_use]
pub(super) const fn age(index: usize) -> u64 {
    let buckets = if index.is_multiple_of(2) { YOUNG } else { OLD };
    width(index / 2) * buckets
}

/// When each bucket ended.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    ticks: u64,
    ends: [VecDeque<f64>; RINGS],
}

impl Grid {
    /// Ticks so far.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Takes in a tick; returns for each ring whether a new bucket begins.
    pub fn tick(&mut self, at: f64) -> [bool; RINGS] {
        let mut rolled = [false; RINGS];
        for (ring, ends) in self.ends.iter_mut().enumerate() {
            rolled[ring] = self.ticks.is_multiple_of(width(ring));
            if rolled[ring] {
                if ends.len() == BUCKETS {
                    ends.pop_front();
                }
                ends.push_back(at);
            } else if let Some(end) = ends.back_mut() {
                *end = at;
            }
        }
        self.ticks += 1;
        rolled
    }

    /// The ends of a ring's buckets, oldest first.
    #[must_use]
    pub fn ends(&self, ring: usize) -> Vec<f64> {
        self.ends[ring].iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{AGES, BUCKETS, Grid, RINGS, age, width};

    #[test]
    fn ages_only_rise() {
        let ages: Vec<u64> = (0..AGES).map(age).collect();
        assert!(ages.is_sorted_by(|a, b| a < b), "{ages:?}");
        assert_eq!(&ages[..4], &[4, 16, 32, 128]);
    }

    #[test]
    fn a_ring_holds_its_buckets_and_no_more() {
        let mut grid = Grid::default();
        for tick in 0..10_000_u32 {
            grid.tick(f64::from(tick));
        }
        assert_eq!(grid.ends(0).len(), BUCKETS);
        assert_eq!(grid.ends(0).last(), Some(&9999.0));
        assert_eq!(grid.ends(1).len(), BUCKETS);
        assert_eq!(grid.ends(2).len(), 10_000_usize.div_ceil(64).min(BUCKETS));
        assert_eq!(grid.ends(RINGS - 1).len(), 1);
        assert_eq!(width(RINGS - 1), 32_768);
    }
}
