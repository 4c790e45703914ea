//! A level over time, in a bounded number of stretches.

use super::arrival::seconds;

/// Stretches that are kept.
const STRETCHES: usize = 64;
/// How long each is at first, in nanoseconds; doubled whenever the time no longer fits.
const SHORTEST: u64 = 250_000_000;

/// The highest level of each stretch of time.
#[derive(Debug)]
pub(super) struct Levels {
    width: u64,
    most: Vec<u64>,
    last: u64,
}

impl Default for Levels {
    fn default() -> Self {
        Self {
            width: SHORTEST,
            most: Vec::new(),
            last: 0,
        }
    }
}

impl Levels {
    /// Records the level from this time on.
    pub(super) fn note(&mut self, at: u64, level: u64) {
        let mut stretch = usize::try_from(at / self.width).unwrap_or(usize::MAX);
        while stretch >= STRETCHES {
            self.most = self
                .most
                .chunks(2)
                .map(|pair| pair.iter().copied().max().unwrap_or(0))
                .collect();
            self.width = self.width.saturating_mul(2);
            stretch = usize::try_from(at / self.width).unwrap_or(usize::MAX);
        }
        if self.most.len() <= stretch {
            self.most.resize(stretch + 1, self.last);
        }
        if let Some(most) = self.most.get_mut(stretch) {
            *most = (*most).max(level);
        }
        self.last = level;
    }

    /// The highest level in all stretches that ended by then, in seconds; 0 if there is none.
    pub(super) fn most_until(&self, until: f64) -> u64 {
        let is_over = |stretch: &usize| {
            let end = u64::try_from(*stretch + 1).unwrap_or(u64::MAX);
            seconds(end.saturating_mul(self.width)) <= until
        };
        let over = (0..self.most.len()).take_while(is_over);
        over.map(|stretch| self.most[stretch]).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::Levels;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_level_holds_until_it_changes_and_the_past_is_kept_however_long_it_takes() {
        let mut levels = Levels::default();
        levels.note(SECOND, 5);
        levels.note(2 * SECOND, 1);
        levels.note(10 * SECOND, 2);
        assert_eq!(levels.most_until(0.5), 0);
        assert_eq!(levels.most_until(1.5), 5);
        levels.note(1000 * SECOND, 9);
        assert_eq!(
            (levels.most_until(500.0), levels.most_until(2000.0)),
            (5, 9)
        );
        assert!(levels.most.len() <= super::STRETCHES);
    }
}
