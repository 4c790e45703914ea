//! The share of the normal distribution outside an interval around zero.

/// Below this the power series is fast and exact, above it the continued fraction.
const BORDER: f64 = 2.0;

/// The share of the standard normal distribution that is at least `|z|` away from zero.
pub(super) fn outside(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    if x < BORDER { 1.0 - inner(x) } else { outer(x) }
}

/// The error function by its series: each term is the last one times 2x²/(2k+1).
fn inner(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    let mut odd = 1.0;
    while term > sum * f64::EPSILON {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp()
}

/// The complementary error function by its continued fraction, from the inside out: a difference
/// from one would lose all significant digits.
fn outer(x: f64) -> f64 {
    // At the border 60 levels are exact to the last digits; further out fewer would suffice.
    let fraction = (1..=60u32)
        .rev()
        .fold(x, |inner, level| x + f64::from(level) / 2.0 / inner);
    (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI / 2.0 / fraction
}

#[cfg(test)]
mod tests {
    use super::outside;

    /// Reference values of `2 * scipy.stats.norm.sf(z)`.
    #[test]
    fn shares_outside_agree_with_reference_values() {
        for (z, share) in [
            (0.0, 1.0),
            (0.5, 0.617_075_077_451_973_8),
            (1.0, 0.317_310_507_862_914_15),
            (1.959_963_984_540_054, 0.05),
            (2.8, 0.005_110_260_660_855_864),
            (2.83, 0.004_654_800_413_463_103),
            (5.0, 5.733_031_437_583_866e-7),
            (10.0, 1.523_970_604_832_094e-23),
        ] {
            for sign in [1.0, -1.0] {
                let error = (outside(sign * z) - share).abs();
                assert!(error <= share * 1e-12, "{z}: {}", outside(z));
            }
        }
    }

    #[test]
    fn nothing_is_outside_of_everything() {
        assert!(outside(50.0) < 1e-300);
        assert!(outside(f64::INFINITY).abs() < f64::EPSILON);
    }
}
