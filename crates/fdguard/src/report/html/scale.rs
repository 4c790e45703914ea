//! Round numbers along an axis.

/// About `wanted` round numbers from 0 to the first one that is at least `highest`.
pub(super) fn ticks(highest: f64, wanted: u32) -> Vec<f64> {
    if !highest.is_finite() || highest <= 0.0 {
        return vec![0.0, 1.0];
    }
    let rough = highest / f64::from(wanted.max(1));
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = steps
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(10.0 * power);
    let mut ticks = vec![0.0];
    while ticks.last().is_some_and(|last| *last < highest) && ticks.len() < 50 {
        let next = u32::try_from(ticks.len()).map_or(0.0, f64::from);
        ticks.push(next * step);
    }
    ticks
}

/// The same for counts: whole numbers only.
pub(super) fn counts(highest: u32, wanted: u32) -> Vec<f64> {
    let mut list = ticks(f64::from(highest.max(1)), wanted);
    list.retain(|tick| tick.fract() == 0.0);
    list
}

#[cfg(test)]
mod tests {
    use super::{counts, ticks};

    #[test]
    fn an_axis_has_round_numbers_and_covers_everything() {
        assert_eq!(ticks(10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(1024.0, 4), [0.0, 500.0, 1000.0, 1500.0]);
        assert_eq!(counts(1, 4), [0.0, 1.0]);
        assert_eq!(counts(0, 4), [0.0, 1.0]);
        for highest in [0.3, 7.0, 99.0, 12_345.0, f64::NAN, -1.0] {
            let list = ticks(highest, 4);
            assert!(list.len() >= 2 && list.len() <= 10, "{highest}: {list:?}");
        }
    }
}
