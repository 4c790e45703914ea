//! How many descriptors there were over time, for drawing.

use serde::Serialize;

use crate::Class;
use crate::timeline::{BUCKETS, RINGS, Timeline, Track};

/// The count, and each family of classes on its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curves {
    /// All descriptors.
    pub total: Curve,
    /// Families of classes, the largest first; none where they could not be listed.
    pub families: Vec<ClassCurve>,
}

/// A family of classes over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassCurve {
    /// Its class: a socket that changes its state stays in the family.
    pub class: Class,
    /// How many of it.
    pub curve: Curve,
}

/// One number over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Curve {
    /// In the order of time.
    pub points: Vec<CurvePoint>,
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Its end, in seconds since the watch began.
    pub at: f64,
    /// The minimum.
    pub min: u32,
    /// The maximum.
    pub max: u32,
}

impl Curve {
    /// The overall maximum.
    #[must_use]
    pub fn highest(&self) -> u32 {
        self.points.iter().map(|point| point.max).max().unwrap_or(0)
    }

    /// Its last value.
    #[must_use]
    pub fn last(&self) -> Option<u32> {
        self.points.last().map(|point| point.max)
    }
}

impl Curves {
    /// The whole watch at the finest scale that reaches back to its beginning.
    #[must_use]
    pub fn of(timeline: &Timeline) -> Self {
        let mut ring = 0;
        let mut reach = BUCKETS as u64;
        while reach < timeline.looks() && ring + 1 < RINGS {
            ring += 1;
            reach = reach.saturating_mul(8);
        }
        let times = timeline.grid().ends(ring);
        let curve = |track: &Track| Curve {
            points: track
                .ring(ring)
                .all
                .padded(times.len())
                .into_iter()
                .zip(&times)
                .map(|(bucket, at)| CurvePoint {
                    at: *at,
                    min: bucket.min,
                    max: bucket.max,
                })
                .collect(),
        };
        let whole = timeline
            .groups()
            .filter(|(_, group)| group.key.target.is_none());
        let mut families: Vec<ClassCurve> = whole
            .map(|(_, group)| ClassCurve {
                class: group.key.family.clone(),
                curve: curve(&group.track),
            })
            .filter(|family| family.curve.highest() > 0)
            .collect();
        families.sort_by_key(|family| std::cmp::Reverse(family.curve.last()));
        Self {
            total: curve(timeline.total()),
            families,
        }
    }
}
