//! Random numbers: the same seed always gives the same process.

/// A small generator (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self) -> bool {
        self.unit() < 0.5
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Evenly by order of magnitude.
    pub(crate) fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    /// A whole number from `low` to `high`.
    pub(crate) fn whole(&mut self, low: u32, high: u32) -> u32 {
        let among = u64::from(high - low) + 1;
        low + u32::try_from(self.next() % among).unwrap_or(0)
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    pub(crate) fn poisson(&mut self, mean: f64) -> u32 {
        let (mut count, mut left) = (0, mean);
        loop {
            left -= self.exponential(1.0);
            if left < 0.0 {
                return count;
            }
            count += 1;
        }
    }
}

/// The integer part of a non-negative number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of descriptors and looks are small and not negative"
)]
pub(crate) fn floor(value: f64) -> u32 {
    value as u32
}
