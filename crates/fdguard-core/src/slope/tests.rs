//! The reference values were computed independently: slopes and intervals by
//! `scipy.stats.theilslopes`, trends by `pymannkendall`.

use proptest::prelude::*;

use super::{MOST_POINTS, Slope, Trend, mann_kendall, mann_kendall_corrected, theil_sen};

/// The flow of the Nile at Aswan, 1871 to 1970: a classic data set.
const NILE: [u16; 100] = [
    1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180,
    799, 958, 1140, 1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100, 774, 840, 874, 694, 940, 833,
    701, 916, 692, 1020, 1050, 969, 831, 726, 456, 824, 702, 1120, 1100, 832, 764, 821, 768, 845,
    864, 862, 698, 845, 744, 796, 1040, 759, 781, 865, 845, 944, 984, 897, 822, 1010, 771, 676,
    649, 846, 812, 742, 801, 1040, 860, 874, 848, 890, 744, 749, 838, 1050, 918, 986, 797, 923,
    975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740,
];

/// Sixty steps of an autoregressive process with coefficient 0.8: no trend, strong autocorrelation.
const RESEMBLING: [f64; 60] = [
    1.3, 2.5, 2.1, 0.9, -0.4, -0.3, -1.2, -2.4, -1.7, -1.3, -0.5, -1.3, -1.0, -0.9, -2.2, -1.2,
    -0.7, 1.9, 1.7, 1.2, 2.2, 2.0, 2.5, 1.6, 1.5, 2.2, 2.5, 2.1, 0.6, 0.9, 0.8, 1.4, 1.3, 2.1, 1.7,
    1.5, 1.9, 0.4, -0.1, -0.5, 1.5, 1.1, 1.6, 1.9, 1.2, -0.6, 0.5, 0.0, 0.7, -0.7, -1.0, 0.4, 1.8,
    0.1, -1.2, -1.0, -0.1, 0.1, 0.4, -0.7,
];

fn nile() -> Vec<f64> {
    NILE.map(f64::from).to_vec()
}

/// A leak of one in four steps under noise that repels its neighbours.
fn drip() -> Vec<f64> {
    (0..50u32)
        .map(|i| f64::from(20 + i / 4 + i * 7 % 5))
        .collect()
}

fn in_order(values: &[f64]) -> Vec<(f64, f64)> {
    (0u32..)
        .map(f64::from)
        .zip(values.iter().copied())
        .collect()
}

fn near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= 1e-9 * wanted.abs().max(1e-9)
}

#[track_caller]
fn assert_slope(points: &[(f64, f64)], wanted: (f64, f64, f64)) {
    let found = theil_sen(points).unwrap();
    let Slope {
        per_second,
        low,
        high,
    } = found;
    let same = near(per_second, wanted.0) && near(low, wanted.1) && near(high, wanted.2);
    assert!(same, "{found:?}, not {wanted:?}");
}

#[track_caller]
fn assert_trend(found: Option<Trend>, s: i64, (z, p, tau): (f64, f64, f64)) {
    let found = found.unwrap();
    let same = near(found.z, z) && near(found.p_two_sided, p) && near(found.tau, tau);
    assert!(found.s == s && same, "{found:?}");
}

#[test]
fn r13_the_example_of_sen_gives_his_slope_and_interval() {
    let points = [
        (1.0, 9.0),
        (2.0, 15.0),
        (3.0, 19.0),
        (4.0, 20.0),
        (10.0, 45.0),
        (12.0, 55.0),
        (18.0, 78.0),
    ];
    assert_slope(&points, (4.0, 26.0 / 7.0, 4.375));
    let values: Vec<f64> = points.iter().map(|point| point.1).collect();
    let certain = (3.003_757_045_930_553, 0.002_666_681_793_614_093_5, 1.0);
    assert_trend(mann_kendall(&values), 21, certain);
}

#[test]
fn a_hundred_years_of_the_nile_agree_with_reference_values() {
    let values = nile();
    let slope = (-2.6, -3.627_906_976_744_186, -1.428_571_428_571_428_6);
    assert_slope(&in_order(&values), slope);
    let tau = -1387.0 / 4950.0;
    let plain = (-4.128_066_522_844_101, 3.658_262_921_664_327e-5, tau);
    assert_trend(mann_kendall(&values), -1387, plain);
    let corrected = (-2.819_979_195_645_138_8, 0.004_802_676_310_182_732, tau);
    assert_trend(mann_kendall_corrected(&values), -1387, corrected);
}

#[test]
fn neighbours_that_resemble_each_other_prove_less() {
    let tau = -94.0 / 1770.0;
    let plain = (-0.593_622_395_881_242_1, 0.552_764_698_300_233_7, tau);
    assert_trend(mann_kendall(&RESEMBLING), -94, plain);
    let corrected = (-0.318_813_209_167_505_94, 0.749_868_161_104_384_5, tau);
    assert_trend(mann_kendall_corrected(&RESEMBLING), -94, corrected);
}

#[test]
fn neighbours_that_repel_each_other_prove_no_more() {
    let plain = (
        7.961_775_498_071_701_5,
        1.695_879_705_041_562e-15,
        950.0 / 1225.0,
    );
    assert_trend(mann_kendall(&drip()), 950, plain);
    assert_eq!(mann_kendall_corrected(&drip()), mann_kendall(&drip()));
    assert_slope(&in_order(&drip()), (0.25, 0.21875, 2.0 / 7.0));
}

#[test]
fn ties_agree_with_reference_values() {
    let values = [3.0, 3.0, 4.0, 4.0, 4.0, 5.0, 5.0, 6.0, 6.0, 7.0, 7.0, 7.0];
    let wanted = (3.936_899_322_661_3, 8.254_121_545_099_951e-5, 57.0 / 66.0);
    assert_trend(mann_kendall(&values), 57, wanted);
    assert_slope(&in_order(&values), (0.4, 1.0 / 3.0, 0.5));
}

#[test]
fn a_spike_does_not_bend_the_slope() {
    let mut values = drip();
    values[49] = 100_000.0;
    let found = theil_sen(&in_order(&values)).unwrap();
    assert!((found.per_second - 0.25).abs() < 0.05, "{found:?}");
}

#[test]
fn two_points_have_a_slope_but_no_interval() {
    let found = theil_sen(&[(0.0, 1.0), (2.0, 5.0)]).unwrap();
    assert_eq!(found.per_second, 2.0);
    assert_eq!((found.low, found.high), (f64::NEG_INFINITY, f64::INFINITY));
}

#[test]
fn what_cannot_be_told_is_none() {
    assert_eq!(theil_sen(&[]), None);
    assert_eq!(theil_sen(&[(1.0, 1.0), (1.0, 9.0)]), None);
    assert_eq!(theil_sen(&[(0.0, 1.0), (1.0, f64::NAN)]), None);
    assert_eq!(mann_kendall(&[1.0, 2.0]), None);
    assert_eq!(mann_kendall(&[1.0, f64::INFINITY, 3.0]), None);
    assert_eq!(mann_kendall_corrected(&[1.0]), None);
}

#[test]
fn a_flat_series_has_no_trend() {
    let flat = [7.0; 30];
    for found in [mann_kendall(&flat), mann_kendall_corrected(&flat)] {
        assert_trend(found, 0, (0.0, 1.0, 0.0));
    }
    assert_slope(&in_order(&flat), (0.0, 0.0, 0.0));
}

#[test]
fn more_points_than_are_paired_give_the_slope_of_every_kth() {
    let many: Vec<f64> = (0..10_000u32).map(|i| f64::from(i / 10 + i % 3)).collect();
    let points = in_order(&many);
    let thinned: Vec<(f64, f64)> = points.iter().step_by(25).copied().collect();
    assert_eq!(thinned.len(), MOST_POINTS);
    assert_eq!(theil_sen(&points), theil_sen(&thinned));
}

fn series() -> impl Strategy<Value = Vec<f64>> {
    // Whole numbers, as counts are: ties are common and arithmetic is exact.
    prop::collection::vec((-500i32..500).prop_map(f64::from), 3..60)
}

proptest! {
    #[test]
    fn a_slope_lies_in_its_interval(values in series()) {
        let Slope { per_second, low, high } = theil_sen(&in_order(&values)).unwrap();
        prop_assert!(low <= per_second && per_second <= high);
    }

    #[test]
    fn shifting_changes_nothing_and_scaling_scales(values in series(), shift in -99i32..99, scale in 1i32..9) {
        let (shift, scale) = (f64::from(shift), f64::from(scale));
        let moved: Vec<f64> = values.iter().map(|value| value * scale + shift).collect();
        prop_assert_eq!(mann_kendall(&values), mann_kendall(&moved));
        let before = theil_sen(&in_order(&values)).unwrap();
        let after = theil_sen(&in_order(&moved)).unwrap();
        for (a, b) in [(before.per_second, after.per_second), (before.low, after.low), (before.high, after.high)] {
            prop_assert!(a * scale == b || (a * scale - b).abs() < 1e-9, "{} {}", a * scale, b);
        }
    }

    #[test]
    fn the_order_of_the_points_does_not_matter(values in series()) {
        let points = in_order(&values);
        let reversed: Vec<(f64, f64)> = points.iter().rev().copied().collect();
        prop_assert_eq!(theil_sen(&points), theil_sen(&reversed));
    }

    #[test]
    fn falling_is_rising_upside_down(values in series()) {
        let negated: Vec<f64> = values.iter().map(|value| -value).collect();
        for test in [mann_kendall, mann_kendall_corrected] {
            let (up, down) = (test(&values).unwrap(), test(&negated).unwrap());
            prop_assert_eq!(up.s, -down.s);
            prop_assert!((up.z + down.z).abs() < 1e-9);
            prop_assert!((up.p_two_sided - down.p_two_sided).abs() < 1e-9);
        }
        let up = theil_sen(&in_order(&values)).unwrap();
        let down = theil_sen(&in_order(&negated)).unwrap();
        prop_assert!((up.per_second + down.per_second).abs() < 1e-9);
    }

    #[test]
    fn what_only_rises_has_a_tau_of_one(steps in prop::collection::vec(1u32..50, 3..60)) {
        let sums = steps.iter().scan(0, |sum, step| { *sum += step; Some(f64::from(*sum)) });
        let values: Vec<f64> = sums.collect();
        let found = mann_kendall(&values).unwrap();
        prop_assert!((found.tau - 1.0).abs() < 1e-12);
        prop_assert!(theil_sen(&in_order(&values)).unwrap().per_second >= 1.0);
    }

    #[test]
    fn the_correction_never_makes_surer(values in series()) {
        let plain = mann_kendall(&values).unwrap();
        let corrected = mann_kendall_corrected(&values).unwrap();
        prop_assert!(corrected.p_two_sided >= plain.p_two_sided - 1e-12);
        prop_assert_eq!((corrected.s, corrected.tau), (plain.s, plain.tau));
    }

    #[test]
    fn any_numbers_are_survived(values: Vec<f64>, times: Vec<f64>) {
        let points: Vec<(f64, f64)> = times.iter().copied().zip(values.iter().copied()).collect();
        let _ = (theil_sen(&points), mann_kendall(&values), mann_kendall_corrected(&values));
    }
}
