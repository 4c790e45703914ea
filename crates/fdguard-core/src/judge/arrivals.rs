//! When the descriptors that are still open were opened, which distinguishes a leak from growth
//! that fills up, fades or turns over.
//!
//! A leak leaves its descriptors evenly over the whole watch, until now. A pool leaves them at the
//! beginning, a cache fewer and fewer, a tide only the last few. Only those past a young age are
//! counted, each in the bucket in which it was opened, so a long sleep between two looks is a gap
//! like any other.

use std::ops::Range;

/// How many of the open descriptors were opened in each bucket.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    counts: Vec<u32>,
    /// How many arrive at a time: 1 by chance or by the clock, more in batches.
    batch: f64,
}

/// The trend, in standard deviations, below which arrivals decline: one leak in a hundred does so
/// by chance.
const FEWER: f64 = -2.3;
/// The same for the later half of a watch, where there are only a few arrivals.
const FEWER_LATE: f64 = -1.9;
/// How much better a warm-up before a steady drip must explain the observations than a cache does
/// (log-likelihood ratio).
const BETTER: f64 = 1.0;
/// The same where each quarter brought less than the one before.
const MUCH_BETTER: f64 = 2.5;
/// A slower decline from quarter to quarter is not evidence that it ends: its time constant is more
/// than half of the watch.
const SLOWEST: f64 = 0.6;
/// How many eighths of the time a warm-up may take.
const WARM_UPS: [usize; 2] = [2, 3];
/// A silence in which this many were expected means that they have stopped: e^-4.6 is one in a
/// hundred.
const OVERDUE: f64 = 4.6;

impl Arrivals {
    /// From the births, ascending, in the buckets of this range; `times` are the ends of all
    /// buckets.
    pub(super) fn of(births: &[f64], times: &[f64], range: Range<usize>) -> Self {
        // Opening times before the end of the first bucket are unknown.
        let range = range.start.max(1)..range.end.max(1);
        let mut counts = vec![0_u32; range.len()];
        let begin = births.partition_point(|birth| *birth <= times[range.start - 1]);
        let mut births = births[begin..].iter().peekable();
        for (count, end) in counts.iter_mut().zip(&times[range]) {
            while births.next_if(|birth| **birth <= *end).is_some() {
                *count += 1;
            }
        }
        // From the later half, because the end of a warm-up is not a batch.
        let batch = batch(&counts[counts.len() / 2..]);
        Self { counts, batch }
    }

    pub(super) fn number(&self) -> u32 {
        self.counts.iter().sum()
    }

    /// How many in each quarter.
    pub(super) fn quarters(&self) -> [u32; 4] {
        self.parts()
    }

    /// How many in each of the equal parts of the time.
    fn parts<const PARTS: usize>(&self) -> [u32; PARTS] {
        let mut parts = [0; PARTS];
        for (index, count) in self.counts.iter().enumerate() {
            parts[PARTS * index / self.counts.len()] += count;
        }
        parts
    }

    /// Whether arrivals become more or less frequent, in standard deviations (Laplace's test).
    pub(super) fn trend(&self) -> f64 {
        let number = f64::from(self.number());
        let length = self.counts.len() as f64;
        if number == 0.0 {
            return 0.0;
        }
        let places = self.counts.iter().enumerate();
        let sum: f64 = places
            .map(|(index, count)| f64::from(*count) * ((index as f64 + 0.5) / length - 0.5))
            .sum();
        sum / (number * self.batch / 12.0).sqrt()
    }

    /// Whether arrivals decline as when a cache has met all its keys.
    pub(super) fn fade(&self) -> bool {
        if self.trend() >= FEWER || self.decline() > SLOWEST {
            return false;
        }
        let needed = if is_dying_away(self.quarters()) {
            MUCH_BETTER
        } else {
            BETTER
        };
        self.favours_a_warm_up() < needed
    }

    /// Whether arrivals decline, judged in the later half of a watch.
    pub(super) fn get_fewer(&self) -> bool {
        self.trend() < FEWER_LATE
    }

    /// The ratio of each quarter to the one before, if the arrivals are those of a cache.
    fn decline(&self) -> f64 {
        let places = self.counts.iter().enumerate();
        let sum: f64 = places
            .map(|(index, count)| f64::from(*count) * (index as f64 + 0.5))
            .sum();
        decline(sum / (f64::from(self.number()) * self.counts.len() as f64))
    }

    /// How much better a warm-up in the first part, followed by a steady drip, explains the
    /// observations than the exponential decline of a cache.
    fn favours_a_warm_up(&self) -> f64 {
        let number = f64::from(self.number());
        let decline = self.decline().sqrt();
        let all: f64 = (0..8).map(|eighth| decline.powi(eighth)).sum();
        let seen = self.parts::<8>().map(f64::from);
        let ratio = |warm: usize| -> f64 {
            let later = seen[warm..].iter().sum::<f64>() / ((8 - warm) as f64);
            let pairs = (0..8).zip(seen.iter().enumerate());
            let pairs = pairs.filter(|(_, (_, seen))| **seen > 0.0);
            pairs
                .map(|(power, (eighth, seen))| {
                    let cache = number * decline.powi(power) / all;
                    let warm_up = if eighth < warm { *seen } else { later };
                    seen * (warm_up / cache).ln()
                })
                .sum()
        };
        // Each eighth of the warm-up is a parameter, which costs one; the cache has one as well.
        let costs = WARM_UPS.map(|warm| ratio(warm) / self.batch - (warm as f64 - 1.0));
        costs.into_iter().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Whether none has arrived for longer than chance or the usual pauses explain.
    pub(super) fn have_stopped(&self) -> bool {
        let length = self.counts.len();
        let Some(last) = self.counts.iter().rposition(|count| *count > 0) else {
            return true;
        };
        let silence = (length - 1 - last) as f64;
        let often = f64::from(self.number()) / (self.batch * (last as f64 + 1.0));
        let pause = (1.5 * self.longest_pause() as f64).min(0.3 * length as f64);
        silence > (OVERDUE / often).max(pause).max(0.1 * length as f64) || self.have_dropped()
    }

    /// Whether the last quarter brought so much less than those before that only something else
    /// still arrives: a pool is full, and a few descriptors of the tide around it are just old
    /// enough to count.
    fn have_dropped(&self) -> bool {
        let mut before = self.quarters().map(f64::from);
        let fourth = before[3];
        // A warm-up in one of the three must not count: use the median.
        before[..3].sort_unstable_by(f64::total_cmp);
        let usual = before[1];
        // The variance of the last quarter, and about that of the usual one.
        let variance = self.batch * usual * 4.0 / 3.0;
        2.0 * fourth < usual && fourth - usual < FEWER * variance.sqrt()
    }

    fn longest_pause(&self) -> usize {
        let mut longest = 0;
        let mut last = None;
        for (index, count) in self.counts.iter().enumerate() {
            if *count > 0 {
                longest = longest.max(last.map_or(0, |last| index - last));
                last = Some(index);
            }
        }
        longest
    }
}

/// How many arrive at a time. Neighbours are compared, so that a slow change of pace does not
/// count.
fn batch(counts: &[u32]) -> f64 {
    let number: u32 = counts.iter().sum();
    let jumps: f64 = counts
        .windows(2)
        .map(|pair| f64::from(pair[1].abs_diff(pair[0])).powi(2))
        .sum();
    (jumps / (2.0 * f64::from(number.max(1)))).max(1.0)
}

/// The ratio of each quarter to the one before, in an exponential decline with this mean time (as a
/// share of the whole).
fn decline(mean: f64) -> f64 {
    let (mut low, mut high) = (0.001_f64, 100.0_f64);
    // The mean of a truncated exponential falls as its rate rises: bisection finds the rate.
    for _ in 0..40 {
        let rate = f64::midpoint(low, high);
        let guess = 1.0 / rate - 1.0 / rate.exp_m1();
        if guess > mean {
            low = rate;
        } else {
            high = rate;
        }
    }
    (-low / 4.0).exp()
}

/// Whether the rise shrinks from quarter to quarter, as when a cache meets fewer and fewer new
/// keys. After a warm-up a leak does not: its later quarters are alike.
pub(super) fn is_dying_away(quarters: [u32; 4]) -> bool {
    let [first, second, third, fourth] = quarters;
    10 * first >= 13 * second && third + fourth <= second && fourth <= third.max(1)
}

#[cfg(test)]
mod tests {
    use super::{Arrivals, decline};

    /// With this many in each bucket.
    fn of(counts: impl IntoIterator<Item = u32>) -> Arrivals {
        let counts: Vec<u32> = counts.into_iter().collect();
        let times: Vec<f64> = (0..=counts.len()).map(|at| at as f64).collect();
        let births: Vec<f64> = (1..)
            .map(f64::from)
            .zip(&counts)
            .flat_map(|(at, count)| std::iter::repeat_n(at, *count as usize))
            .collect();
        Arrivals::of(&births, &times, 0..times.len())
    }

    #[test]
    fn a_drip_neither_fades_nor_stops() {
        let drip = of((0..80).map(|at| u32::from(at % 4 == 0)));
        assert_eq!(drip.quarters(), [5, 5, 5, 5]);
        assert!(!drip.fade() && !drip.get_fewer() && !drip.have_stopped());
    }

    #[test]
    fn a_cache_fades_and_a_warm_up_before_a_drip_does_not() {
        // Halved every twelve buckets.
        let cache = of((0..80).map(|at| 12 >> (at / 12)));
        assert!(cache.fade(), "{:?}", cache.quarters());
        let warm_up = of((0..80).map(|at| if at < 15 { 6 } else { u32::from(at % 4 == 0) }));
        assert!(!warm_up.fade(), "{:?}", warm_up.quarters());
        assert!(!warm_up.have_stopped());
    }

    #[test]
    fn a_pool_that_is_full_has_stopped_even_in_a_tide() {
        let pool = of((0..80).map(|at| u32::from(at < 60)));
        assert!(pool.have_stopped());
        let tide = of((0..80).map(|at| u32::from(!(60..78).contains(&at))));
        assert!(tide.have_stopped());
    }

    #[test]
    fn a_pause_like_those_before_is_no_end() {
        let pauses = of((0..80).map(|at| u32::from(at % 16 < 8)));
        assert!(!pauses.have_stopped());
    }

    #[test]
    fn batches_are_told_from_single_ones() {
        assert!((of([1; 40]).batch - 1.0).abs() < 1e-9);
        let batches = of((0..80).map(|at| if at % 10 == 0 { 8 } else { 0 }));
        assert!(batches.batch > 6.0, "{}", batches.batch);
    }

    #[test]
    fn nothing_arrived_is_no_trend_and_no_panic() {
        for length in [0, 1, 3] {
            let nothing = of(vec![0; length]);
            assert!(!nothing.fade() && nothing.have_stopped());
        }
        assert_eq!(of(Vec::new()).quarters(), [0; 4]);
    }

    #[test]
    fn a_decline_is_found_from_its_mean() {
        // A rate of four over the whole: each quarter has 1/e of the one before.
        let mean = 1.0 / 4.0 - 1.0 / 4.0_f64.exp_m1();
        assert!((decline(mean) - (-1.0_f64).exp()).abs() < 1e-6);
    }
}
