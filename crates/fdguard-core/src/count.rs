//! Arithmetic on counts of descriptors.

/// A count as a floating-point number.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of descriptors are far below 2^52"
)]
#[must_use]
pub fn as_f64(count: u64) -> f64 {
    count as f64
}

/// The increase from before to after; negative for a decrease.
#[must_use]
pub fn difference(before: u64, after: u64) -> i64 {
    let size = i64::try_from(after.abs_diff(before)).unwrap_or(i64::MAX);
    if after < before { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn a_difference_has_a_sign_and_never_overflows() {
        assert_eq!(difference(3, 10), 7);
        assert_eq!(difference(10, 3), -7);
        assert_eq!(difference(0, u64::MAX), i64::MAX);
        assert_eq!(difference(u64::MAX, 0), -i64::MAX);
    }
}
