//! What stays: the lower envelope of a series, and the steps in which it rose.

use crate::timeline::Bucket;

/// A stretch of one series with what stayed of it.
///
/// The envelope at a moment is the minimum from then on. A rise that fell again leaves no trace in
/// it; a rise that stayed is a step. The deepest fall of the series is subtracted from the height
/// at the end, because it may fall as far again.
#[derive(Clone, Debug)]
pub(super) struct Envelope<'a> {
    /// End of each bucket, in seconds.
    times: &'a [f64],
    floor: Vec<u32>,
    steps: Vec<Step>,
    /// The deepest fall from a height to a later low.
    pub(super) fall: u32,
    /// The height at the end.
    pub(super) end: u32,
    /// How many were closed in the stretch.
    pub(super) died: u32,
}

/// When the envelope rose, and by how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) at: f64,
    pub(super) by: u32,
}

impl<'a> Envelope<'a> {
    /// Of the buckets from `start` on.
    pub(super) fn of(times: &'a [f64], buckets: &[Bucket], start: usize) -> Self {
        let buckets = &buckets[start.min(buckets.len())..];
        let mut floor: Vec<u32> = buckets.iter().map(|bucket| bucket.min).collect();
        for index in (1..floor.len()).rev() {
            floor[index - 1] = floor[index - 1].min(floor[index]);
        }
        let fall = deepest_fall(buckets);
        let top = floor.last().map_or(0, |end| end.saturating_sub(fall));
        let end = floor.last().copied().unwrap_or(0);
        for value in &mut floor {
            *value = (*value).min(top);
        }
        let died = match (buckets.first(), buckets.last()) {
            (Some(first), Some(last)) => last.died.saturating_sub(first.died),
            _ => 0,
        };
        let times = &times[start.min(times.len())..];
        Self {
            steps: steps(times, &floor),
            times,
            floor,
            fall,
            end,
            died,
        }
    }

    /// How much higher the envelope ends than it began.
    pub(super) fn rise(&self) -> u32 {
        match (self.floor.first(), self.floor.last()) {
            (Some(first), Some(last)) => last - first,
            _ => 0,
        }
    }

    /// Seconds that it spans.
    pub(super) fn span(&self) -> f64 {
        match (self.times.first(), self.times.last()) {
            (Some(first), Some(last)) => last - first,
            _ => 0.0,
        }
    }

    /// Seconds before its end that the last step happened; the whole span when there was none.
    pub(super) fn silence(&self) -> f64 {
        let end = self.times.last().copied().unwrap_or(0.0);
        self.steps()
            .last()
            .map_or(self.span(), |step| end - step.at)
    }

    /// Its steps.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How much it rose in each quarter of its time.
    pub(super) fn quarters(&self) -> [u32; 4] {
        let mut quarters = [0; 4];
        let (begin, span) = (self.times.first().copied().unwrap_or(0.0), self.span());
        for step in self.steps() {
            let share = if span > 0.0 {
                (step.at - begin) / span
            } else {
                0.0
            };
            let quarter = [0.25, 0.5, 0.75]
                .iter()
                .filter(|edge| share > **edge)
                .count();
            quarters[quarter] += step.by;
        }
        quarters
    }

    /// The points of the envelope, for a slope.
    pub(super) fn points(&self) -> Vec<(f64, f64)> {
        let floor = self.floor.iter().map(|value| f64::from(*value));
        self.times.iter().copied().zip(floor).collect()
    }
}

fn steps(times: &[f64], floor: &[u32]) -> Vec<Step> {
    let pairs = floor.windows(2).zip(times.iter().skip(1));
    pairs
        .filter(|(pair, _)| pair[1] > pair[0])
        .map(|(pair, at)| Step {
            at: *at,
            by: pair[1] - pair[0],
        })
        .collect()
}

/// An upper bound for the rise of these buckets' envelope, without computing it.
pub(super) fn highest_rise(buckets: &[Bucket]) -> u32 {
    let low = buckets.iter().map(|bucket| bucket.min).min();
    let end = buckets.last().map_or(0, |bucket| bucket.min);
    end - low.unwrap_or(end)
}

/// The deepest fall from the height of an earlier bucket. Within one bucket the order is unknown.
fn deepest_fall(buckets: &[Bucket]) -> u32 {
    let mut height = 0_u32;
    let mut fall = 0;
    for bucket in buckets {
        fall = fall.max(height.saturating_sub(bucket.min));
        height = height.max(bucket.max);
    }
    fall
}

#[cfg(test)]
mod tests {
    use super::{Envelope, Step};
    use crate::timeline::Bucket;

    static TIMES: [f64; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];

    fn of(values: &[u32]) -> Envelope<'static> {
        let buckets: Vec<_> = values
            .iter()
            .map(|value| Bucket {
                min: *value,
                max: *value,
                died: 0,
            })
            .collect();
        Envelope::of(&TIMES[..buckets.len()], &buckets, 0)
    }

    #[test]
    fn what_rose_and_fell_leaves_no_trace() {
        let burst = of(&[3, 3, 9, 9, 3, 3]);
        assert_eq!((burst.rise(), burst.fall), (0, 6));
        assert_eq!(burst.steps(), []);
        assert!((burst.silence() - 5.0).abs() < 1e-9);
    }

    #[test]
    fn what_rose_and_stayed_is_a_step() {
        let steps = of(&[1, 1, 4, 3, 3, 8]);
        assert_eq!((steps.rise(), steps.fall), (6, 1));
        assert_eq!(
            steps.steps(),
            [Step { at: 2.0, by: 2 }, Step { at: 5.0, by: 4 }]
        );
        assert_eq!(steps.quarters(), [0, 2, 0, 4]);
    }

    #[test]
    fn nothing_seen_is_nothing_risen() {
        let nothing = of(&[]);
        assert_eq!((nothing.rise(), nothing.end, nothing.fall), (0, 0, 0));
        assert_eq!(of(&[7]).quarters(), [0; 4]);
    }
}
