//! The history of one number of descriptors: all of them, those of a class, those of a target.

use std::collections::VecDeque;

use super::grid::{AGES, BUCKETS, RINGS};

/// Levels of age: all descriptors, then one for each age of the grid.
pub(super) const LEVELS: usize = AGES + 1;

/// Higher counts are clamped to this. No kernel allows that many, and it leaves room for small
/// multiples.
const MOST: u32 = u32::MAX / 32;

/// A stretch of time in one series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// The minimum.
    pub min: u32,
    /// The maximum.
    pub max: u32,
    /// How many of this age had been closed by its end, since the watch began.
    pub died: u32,
}

/// One series of buckets, and the maximum of those that were dropped.
#[derive(Clone, Debug, Default)]
pub struct BucketSeries {
    buckets: VecDeque<Bucket>,
    past: Option<PastBuckets>,
}

/// The summary of the buckets dropped from a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastBuckets {
    /// The highest value.
    pub max: u32,
    /// The deepest fall.
    pub fall: u32,
    /// How often it fell by at least half of that, as far as was known by then.
    pub falls: u32,
    /// The height since the last fall.
    height: u32,
}

impl PastBuckets {
    fn take(&mut self, bucket: Bucket) {
        let fall = self.height.saturating_sub(bucket.min);
        if fall > 0 && fall >= self.fall.div_ceil(2) {
            self.fall = self.fall.max(fall);
            self.falls = self.falls.saturating_add(1);
            self.height = bucket.min;
        }
        self.height = self.height.max(bucket.max);
        self.max = self.max.max(bucket.max);
    }

    /// The height that is not new. If it rose and fell repeatedly, the next rise may be slightly
    /// higher than all before.
    #[must_use]
    pub fn usual_max(self) -> u32 {
        if self.falls >= 2 {
            self.max + self.fall / 2
        } else {
            self.max
        }
    }
}

impl BucketSeries {
    fn push(&mut self, bucket: Bucket) {
        if self.buckets.len() == BUCKETS
            && let Some(oldest) = self.buckets.pop_front()
        {
            self.past.get_or_insert_default().take(oldest);
        }
        self.buckets.push_back(bucket);
    }

    fn note(&mut self, now: u32, died: u32) {
        match self.buckets.back_mut() {
            Some(bucket) => {
                bucket.min = bucket.min.min(now);
                bucket.max = bucket.max.max(now);
                bucket.died = died;
            }
            // Created in the middle of a bucket: before, there was nothing.
            None => self.buckets.push_back(Bucket {
                min: 0,
                max: now,
                died,
            }),
        }
    }

    /// The buckets before the oldest; absent while none was dropped.
    #[must_use]
    pub fn past(&self) -> Option<PastBuckets> {
        self.past
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// The last `length` buckets; those before the first one are zero.
    #[must_use]
    pub fn padded(&self, length: usize) -> Vec<Bucket> {
        let missing = length.saturating_sub(self.buckets.len());
        let kept = self.buckets.len().saturating_sub(length);
        std::iter::repeat_n(Bucket::default(), missing)
            .chain(self.buckets.iter().skip(kept).copied())
            .collect()
    }
}

/// One scale of time: all descriptors, those past its young age, those past its old one.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    /// All descriptors.
    pub all: BucketSeries,
    /// Those that lived for four buckets.
    pub young: BucketSeries,
    /// Those that lived for sixteen.
    pub old: BucketSeries,
}

/// A number of descriptors over time, at every age and scale.
#[derive(Clone, Debug)]
pub struct Track {
    now: [u32; LEVELS],
    died: [u32; LEVELS],
    rings: Vec<Ring>,
    /// Highest level whose number changed since the last sample.
    dirty: bool,
    /// Tick of the last change, to find unused tracks.
    pub(super) touched: u64,
}

impl Default for Track {
    fn default() -> Self {
        Self {
            now: [0; LEVELS],
            died: [0; LEVELS],
            rings: vec![Ring::default(); RINGS],
            dirty: false,
            touched: 0,
        }
    }
}

impl Track {
    /// How many there are now.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.now[0]
    }

    /// One scale of it.
    #[must_use]
    pub fn ring(&self, ring: usize) -> &Ring {
        &self.rings[ring]
    }

    /// How many were ever closed.
    #[must_use]
    pub fn closed(&self) -> u32 {
        self.died[0]
    }

    pub(super) fn reach(&mut self, level: usize) {
        self.now[level] += 1;
        self.dirty = true;
    }

    /// A descriptor that had reached `level` was closed.
    pub(super) fn lose(&mut self, level: usize) {
        for (now, died) in self.now[..=level].iter_mut().zip(&mut self.died) {
            *now -= 1;
            *died = died.saturating_add(1);
        }
        self.dirty = true;
    }

    /// A descriptor of this level moves to another track: neither closed nor opened.
    pub(super) fn release(&mut self, level: usize) {
        for now in &mut self.now[..=level] {
            *now -= 1;
        }
        self.dirty = true;
    }

    /// Only a count is known.
    pub(super) fn set(&mut self, count: u64) {
        let count = u32::try_from(count).map_or(MOST, |count| count.min(MOST));
        self.dirty |= self.now[0] != count;
        self.now[0] = count;
    }

    /// Records the present numbers, after all changes of a look: the state between a close and an
    /// open was never observed.
    pub(super) fn sample(&mut self, rolled: &[bool; RINGS], tick: u64) {
        for (index, ring) in self.rings.iter_mut().enumerate() {
            let levels = [0, 2 * index + 1, 2 * index + 2];
            let series = [&mut ring.all, &mut ring.young, &mut ring.old];
            for (series, level) in series.into_iter().zip(levels) {
                let (now, died) = (self.now[level], self.died[level]);
                if rolled[index] {
                    series.push(Bucket {
                        min: now,
                        max: now,
                        died,
                    });
                } else if self.dirty {
                    series.note(now, died);
                }
            }
        }
        if self.dirty {
            self.touched = tick;
        }
        self.dirty = false;
    }
}
