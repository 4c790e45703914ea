//! Ranks, ties, medians and correlations of a series.

use crate::count::as_f64;

/// The median of sorted values; `None` for an empty list.
pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = sorted[sorted.len() / 2 - 1];
    // Halved first: the sum of two large numbers may overflow.
    Some(lower / 2.0 + upper / 2.0)
}

/// The variance of Kendall's statistic over `n` values, reduced for the ties in each series.
pub(super) fn variance(n: usize, series: &[&[f64]]) -> f64 {
    let ties = series.iter().flat_map(|values| groups(values));
    (term(n) - ties.map(term).sum::<f64>()) / 18.0
}

fn term(size: usize) -> f64 {
    let size = as_f64(size as u64);
    size * (size - 1.0) * (2.0 * size + 5.0)
}

/// The sizes of the groups of equal values.
fn groups(values: &[f64]) -> Vec<usize> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.chunk_by(|a, b| a == b).map(<[f64]>::len).collect()
}

/// The rank of each value, from 1; equal values share their mean rank.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for group in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let middle = as_f64(before) + (as_f64(group.len() as u64) + 1.0) / 2.0;
        for at in group {
            ranks[*at] = middle;
        }
        before += group.len() as u64;
    }
    ranks
}

/// The correlation of a series with itself one step later, two steps later, and so on; nothing
/// where the series does not vary.
pub(super) fn autocorrelations(values: &[f64]) -> impl Iterator<Item = f64> {
    let mean = values.iter().sum::<f64>() / as_f64(values.len() as u64);
    let apart: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let own: f64 = apart.iter().map(|value| value * value).sum();
    let lags = if own > 0.0 { values.len() } else { 0 };
    (1..lags).map(move |lag| {
        let products = apart.iter().zip(&apart[lag..]).map(|(a, b)| a * b);
        products.sum::<f64>() / own
    })
}

#[cfg(test)]
mod tests {
    use super::{autocorrelations, median, ranks, variance};

    #[test]
    fn equal_values_share_the_middle_of_their_ranks() {
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 9.0]), [2.5, 1.0, 2.5, 4.0]);
    }

    #[test]
    fn a_median_lies_between_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 3.0, 9.0]), Some(2.5));
    }

    #[test]
    fn ties_take_from_the_variance() {
        // By hand: 4·3·13/18, minus 2·1·9/18 for one pair of equals.
        let without = variance(4, &[&[1.0, 2.0, 3.0, 4.0]]);
        assert!((without - 156.0 / 18.0).abs() < 1e-12);
        let with = variance(4, &[&[1.0, 2.0, 2.0, 4.0]]);
        assert!((with - 138.0 / 18.0).abs() < 1e-12);
    }

    #[test]
    fn what_does_not_vary_correlates_with_nothing() {
        assert_eq!(autocorrelations(&[2.0; 5]).count(), 0);
        let found: Vec<f64> = autocorrelations(&[1.0, -1.0, 1.0, -1.0]).collect();
        assert_eq!(found, [-0.75, 0.5, -0.25]);
    }
}
