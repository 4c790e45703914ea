//! Whether there is a trend, and how steep it is. Uses ranks and medians, so that one spike, one
//! garbage collection or one missing sample does not decide: a fitted line follows its outliers, a
//! median does not.
//!
//! [`theil_sen`] gives the slope and its confidence interval, [`mann_kendall`] the probability that
//! the order of the values is chance, [`mann_kendall_corrected`] the same where neighbours resemble
//! each other, as the samples of one pool do.

mod normal;
mod ranks;
#[cfg(test)]
mod tests;

use crate::count::as_f64;

/// The most points for which every pair is compared: 400 points are 79,800 pairs.
pub const MOST_POINTS: usize = 400;

/// The 97.5 % point of the normal distribution: two of them enclose 95 %.
const NORMAL_975: f64 = 1.959_963_984_540_054;

/// The steepness of a cloud of points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// The median of the slopes of all pairs: units per second, where the times were in seconds.
    pub per_second: f64,
    /// Lower end of the 95 % interval; minus infinity where the points are too few for one.
    pub low: f64,
    /// Upper end of the 95 % interval; infinity where the points are too few for one.
    pub high: f64,
}

/// Whether values in sequence rise or fall more than chance explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Rising pairs minus falling pairs.
    pub s: i64,
    /// `s` in standard deviations, corrected for continuity.
    pub z: f64,
    /// How often chance alone gives at least this much, in either direction.
    pub p_two_sided: f64,
    /// `s` as a share of all pairs: 1 for values that only rise, −1 for values that only fall.
    pub tau: f64,
}

/// The slope after Theil and Sen through points of (seconds, value), in any order.
///
/// The interval is Sen's (1968), from the variance of Kendall's statistic with its ties. Of more
/// than [`MOST_POINTS`] points every k-th is taken. `None` where no two points differ in time, or
/// one is not a finite number.
#[must_use]
pub fn theil_sen(points: &[(f64, f64)]) -> Option<Slope> {
    let step = points.len().div_ceil(MOST_POINTS).max(1);
    let points: Vec<(f64, f64)> = points.iter().step_by(step).copied().collect();
    let mut slopes = Vec::with_capacity(points.len() * points.len().saturating_sub(1) / 2);
    for (at, (time, value)) in points.iter().enumerate() {
        let others = points[at + 1..].iter().filter(|other| other.0 != *time);
        slopes.extend(others.map(|other| (other.1 - value) / (other.0 - time)));
    }
    if slopes.is_empty() || slopes.iter().any(|slope| !slope.is_finite()) {
        return None;
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let (times, values): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
    let variance = ranks::variance(values.len(), &[&times, &values]);
    let (low, high) = interval(&slopes, NORMAL_975 * variance.max(0.0).sqrt());
    Some(Slope {
        per_second: ranks::median(&slopes)?,
        low,
        high,
    })
}

/// The interval that contains the true slope, from the sorted slopes of all pairs. Its bounds are
/// the ranks at which the statistic deviates by at most `spread`.
fn interval(slopes: &[f64], spread: f64) -> (f64, f64) {
    let pairs = as_f64(slopes.len() as u64);
    let below = ((pairs - spread) / 2.0).round_ties_even();
    let above = ((pairs + spread) / 2.0).round_ties_even();
    // The rank `below` counts from 1: at 0 no slope in the list is low enough.
    let low = rank(slopes, below - 1.0).unwrap_or(f64::NEG_INFINITY);
    let high = rank(slopes, above).unwrap_or(f64::INFINITY);
    (low, high)
}

/// The element at this integer index, from 0, if there is one.
fn rank(slopes: &[f64], at: f64) -> Option<f64> {
    if at < 0.0 {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number that is not negative, and not above the number of pairs"
    )]
    slopes.get(at as usize).copied()
}

/// The Mann–Kendall test, with the corrections for ties and for continuity.
///
/// The normal distribution approximates the exact one, which is good enough from about ten values
/// on. `None` for fewer than three values or if one is not a finite number. Every pair is compared:
/// callers thin out long series first.
#[must_use]
pub fn mann_kendall(values: &[f64]) -> Option<Trend> {
    trend(values, 1.0)
}

/// The same for values that resemble their neighbours, after Hamed and Rao (1998).
///
/// The variance grows by the ratio of the number of values to the number of independent ones,
/// computed from the autocorrelation of the ranks of the detrended values; only lags that are
/// significant at 5 % count. If neighbours repel each other, as in a saw-tooth, the formula would
/// make the test more certain than for independent values, which is not credible: the ratio is at
/// least 1.
#[must_use]
pub fn mann_kendall_corrected(values: &[f64]) -> Option<Trend> {
    let points: Vec<(f64, f64)> = (0u64..).map(as_f64).zip(values.iter().copied()).collect();
    let slope = theil_sen(&points)?.per_second;
    let rest: Vec<f64> = points
        .iter()
        .map(|(time, value)| value - time * slope)
        .collect();
    trend(values, inflation(&ranks::ranks(&rest)).max(1.0))
}

/// The factor by which dependence among these ranks widens the variance of the statistic.
fn inflation(ranks: &[f64]) -> f64 {
    let n = as_f64(ranks.len() as u64);
    let significant = NORMAL_975 / n.sqrt();
    let sum: f64 = ranks::autocorrelations(ranks)
        .zip((1u64..).map(as_f64))
        .filter(|(correlation, _)| correlation.abs() > significant)
        .map(|(correlation, lag)| (n - lag) * (n - lag - 1.0) * (n - lag - 2.0) * correlation)
        .sum();
    1.0 + 2.0 / (n * (n - 1.0) * (n - 2.0)) * sum
}

fn trend(values: &[f64], inflation: f64) -> Option<Trend> {
    if values.len() < 3 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let s = score(values);
    let pairs = as_f64((values.len() * (values.len() - 1) / 2) as u64);
    let deviation = (ranks::variance(values.len(), &[values]) * inflation).sqrt();
    let size = as_f64(s.unsigned_abs());
    // One step towards zero: the statistic is discrete, the distribution is not. Values that are
    // all equal have no deviation and no score.
    let z = if s == 0 {
        0.0
    } else {
        ((size - 1.0) / deviation).copysign(if s < 0 { -1.0 } else { 1.0 })
    };
    Some(Trend {
        s,
        z,
        p_two_sided: normal::outside(z),
        tau: size.copysign(if s < 0 { -1.0 } else { 1.0 }) / pairs,
    })
}

/// Rising pairs minus falling pairs.
fn score(values: &[f64]) -> i64 {
    let mut s = 0;
    for (at, value) in values.iter().enumerate() {
        for later in &values[at + 1..] {
            s += i64::from(later > value) - i64::from(later < value);
        }
    }
    s
}
