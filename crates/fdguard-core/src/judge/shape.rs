//! The shape of a series that does not leak, in words.

use serde::{Deserialize, Serialize};

use super::assess::Verdict;
use super::envelope::Envelope;
use crate::timeline::Bucket;

/// The form of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Too few observations.
    Unseen,
    /// Unchanged.
    Flat,
    /// Rose and has been level since: a pool, a cache at its cap, a warm-up.
    Plateau,
    /// Rises less and less.
    Fading,
    /// Rose in one go.
    Step,
    /// Rose and came back.
    Burst,
    /// Rises and falls, again and again.
    SawTooth,
    /// Fluctuates around a level.
    Churn,
    /// Went down.
    Fall,
    /// Rises; too early to know whether it stops.
    Rise,
    /// Rises steadily because descriptors are never closed.
    Drip,
}

impl Shape {
    /// Names a series that is neither leaking nor growing.
    pub(super) fn of(all: &[Bucket], envelope: &Envelope<'_>) -> (Verdict, Self) {
        let low = all.iter().map(|bucket| bucket.min).min().unwrap_or(0);
        let high = all.iter().map(|bucket| bucket.max).max().unwrap_or(0);
        let range = high - low;
        if range <= 2.max(high / 20) {
            return (Verdict::Stable, Self::Flat);
        }
        let first = all.first().map_or(0, |bucket| bucket.min);
        let last = all.last().map_or(0, |bucket| bucket.max);
        let rise = envelope.rise();
        let shape = if 2 * rise >= range {
            risen(envelope)
        } else if falls(all, range) >= 2 {
            Self::SawTooth
        } else if last + range / 2 < first {
            Self::Fall
        } else if stays_within(all, first, range) {
            Self::Burst
        } else {
            Self::Churn
        };
        (Verdict::Bounded, shape)
    }

    /// A short phrase for people.
    #[must_use]
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Unseen => "too few samples to tell",
            Self::Flat => "steady",
            Self::Plateau => "rose and has been level since, like a pool or cache that is full",
            Self::Fading => "rises more and more slowly, like a warm-up",
            Self::Step => "rose in one step and has been level since",
            Self::Burst => "rose and fell back, like a burst of work",
            Self::SawTooth => "rises and falls repeatedly, like a garbage-collected program",
            Self::Churn => "fluctuates around a level",
            Self::Fall => "fell",
            Self::Rise => "rises; too early to tell whether it stops",
            Self::Drip => "rises steadily because descriptors are never closed",
        }
    }
}

fn risen(envelope: &Envelope<'_>) -> Shape {
    let steps = envelope.steps();
    let largest = steps.iter().map(|step| step.by).max().unwrap_or(0);
    let [first, second, third, fourth] = envelope.quarters();
    if 10 * largest >= 8 * envelope.rise() {
        Shape::Step
    } else if fourth > 0 && fourth < third.max(second).max(first) {
        Shape::Fading
    } else {
        Shape::Plateau
    }
}

/// How often it fell by half of its range.
fn falls(all: &[Bucket], range: u32) -> usize {
    let (mut falls, mut height) = (0, 0);
    for bucket in all {
        if height >= bucket.min + range.div_ceil(2) {
            falls += 1;
            height = bucket.min;
        }
        height = height.max(bucket.max);
    }
    falls
}

/// Whether the first and the last part are at one level, with the peak in between.
fn stays_within(all: &[Bucket], first: u32, range: u32) -> bool {
    let last = all.last().map_or(0, |bucket| bucket.min);
    last.abs_diff(first) * 4 <= range
}
