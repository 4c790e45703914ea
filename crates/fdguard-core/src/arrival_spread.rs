//! How arrivals that stay are spread over time: descriptors that are not closed, and children that
//! are not waited for.

use crate::count::as_f64;

/// The time from the first arrival to the last is cut into this many parts.
const PARTS: u64 = 30;
/// What keeps arriving does so for at least this share of the whole time.
const WIDE: f64 = 0.25;
/// The longest silence at the end, as a share of the time in which they arrived: a program winds up.
const WINDING_UP: f64 = 1.0 / 3.0;
/// If this many times as many arrived early as late, arrivals fade.
const FADING: usize = 3;

/// The spread of some arrivals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalSpread {
    /// From the first to the last.
    came: f64,
    /// Whether they go on until the end, without becoming fewer.
    pub(crate) goes_on: bool,
    /// How many parts of the time from the first to the last contain one.
    pub(crate) parts: usize,
}

impl ArrivalSpread {
    /// Of these times, in order, up to then; `None` without any.
    pub(crate) fn new(times: &[f64], until: f64) -> Option<Self> {
        let (first, last) = (times.first()?, times.last()?);
        let (came, silent) = (last - first, until - last);
        let early = times.partition_point(|time| *time < first + came / 2.0);
        let late = times.len() - early;
        let part = (came / as_f64(PARTS)).max(f64::EPSILON);
        let parts = times.iter().map(|time| ((time - first) / part).floor());
        let mut parts: Vec<f64> = parts.collect();
        // Already in order, because the times are.
        parts.dedup();
        Some(Self {
            came,
            goes_on: silent <= WINDING_UP * came && early <= FADING * late,
            parts: parts.len(),
        })
    }

    /// Whether they cover a good share of the whole time.
    pub(crate) fn is_wide(&self, whole: f64) -> bool {
        self.came >= WIDE * whole
    }
}
