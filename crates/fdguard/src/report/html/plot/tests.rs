use fdguard_core::Class;
use fdguard_core::evidence::{ClassCurve, Curve, CurvePoint, Curves};
use fdguard_core::forecast::Forecast;

use super::{families, total};

fn curve(counts: &[u32]) -> Curve {
    let points = counts.iter().zip(0_u32..);
    Curve {
        points: points
            .map(|(count, second)| CurvePoint {
                at: f64::from(second),
                min: *count,
                max: *count,
            })
            .collect(),
    }
}

fn curves(counts: &[u32]) -> Curves {
    Curves {
        total: curve(counts),
        families: vec![ClassCurve {
            class: Class::Other("<b onload=\"x\">".into()),
            curve: curve(counts),
        }],
    }
}

fn soft_limit(at: u64, used: u64, eta: Option<f64>) -> Forecast {
    Forecast {
        name: "soft-limit".to_owned(),
        at,
        used: Some(used),
        left: Some(at - used),
        percent: None,
        rate_per_min: None,
        eta_seconds: eta,
        soonest_seconds: eta.map(|eta| eta * 0.9),
        latest_seconds: eta.map(|eta| eta * 1.2),
        only_if: None,
    }
}

#[test]
fn a_near_limit_is_drawn_and_a_far_one_is_named() {
    let near = total(&curves(&[10, 20, 30]), Some(&soft_limit(50, 30, Some(2.0))));
    assert!(
        near.contains("class=\"limit\"") && near.contains("class=\"band\""),
        "{near}"
    );
    let far = total(&curves(&[10, 10, 10]), Some(&soft_limit(65_536, 10, None)));
    assert!(
        !far.contains("class=\"limit\"") && far.contains("soft limit 65,536"),
        "{far}"
    );
    assert!(!far.contains("class=\"band\""), "{far}");
}

#[test]
fn nothing_is_drawn_outside_of_the_picture() {
    for counts in [&[][..], &[0], &[5], &[0, 0, 0], &[1, 1_000_000, 3]] {
        let used = counts.last().copied().unwrap_or(0).into();
        for eta in [None, Some(0.0), Some(0.001), Some(1e12)] {
            let svg = total(&curves(counts), Some(&soft_limit(2_000_000, used, eta)));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(!svg.contains("=\"-"), "{svg}");
        }
    }
}

#[test]
fn names_of_classes_are_text() {
    let small = families(&curves(&[1, 2]));
    assert!(small.contains("&lt;b onload=&quot;x&quot;&gt;"), "{small}");
    assert!(!small.contains("<b "), "{small}");
}
