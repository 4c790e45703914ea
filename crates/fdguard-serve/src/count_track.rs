//! What the radar alone knows about a process over time: a few numbers, and whether they deserve a
//! watch.

/// Share of the soft limit from which a process is watched whether it grows or not.
const NEAR: f64 = 0.7;
/// A process that rose to a new height this often grows, or starts up.
const RISES: u32 = 2;
/// And by this many descriptors.
const GROWN: u64 = 2;
/// A watch that saw no new height for this long has told what it can.
const QUIET: f64 = 6.0 * 3600.0;

/// The counts of one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CountTrack {
    first: u64,
    last: u64,
    highest: u64,
    /// Looks that saw more than every look before.
    rises: u32,
    /// When the last of them was, in seconds.
    rose_at: f64,
}

impl CountTrack {
    pub(crate) fn new(count: u64, now: f64) -> Self {
        Self {
            first: count,
            last: count,
            highest: count,
            rises: 0,
            rose_at: now,
        }
    }

    /// Takes in the next count, and returns whether it differs from the last.
    pub(crate) fn observe(&mut self, count: u64, now: f64) -> bool {
        let has_changed = count != self.last;
        self.last = count;
        if count > self.highest {
            self.highest = count;
            self.rises += 1;
            self.rose_at = now;
        }
        has_changed
    }

    /// How much the process deserves a watch; `None` if it does not. Larger is more urgent.
    pub(crate) fn urgency(&self, soft: Option<u64>, now: f64) -> Option<f64> {
        let share = soft
            .filter(|soft| *soft > 0)
            .map(|soft| self.last as f64 / soft as f64);
        let share = share.unwrap_or(0.0);
        let has_grown = self.highest.saturating_sub(self.first) >= GROWN && self.rises >= RISES;
        let is_recent = now - self.rose_at < QUIET;
        if share >= NEAR {
            return Some(100.0 + share);
        }
        // Many steps are more suspicious than one leap, and a late step more than an early one.
        let steps = f64::from(self.rises.min(50));
        let age = (now - self.rose_at).max(0.0) / QUIET;
        (has_grown && is_recent).then_some(steps * (1.0 - age) + 10.0 * share)
    }
}

#[cfg(test)]
mod tests {
    use super::CountTrack;

    fn track(counts: &[u64]) -> CountTrack {
        let mut track = CountTrack::new(counts[0], 0.0);
        for (at, count) in counts.iter().enumerate().skip(1) {
            track.observe(*count, at as f64);
        }
        track
    }

    #[test]
    fn what_stays_level_or_breathes_is_left_alone() {
        for counts in [
            &[10, 10, 10, 10][..],
            &[30, 12, 30, 12, 30],
            &[10, 11, 10, 11],
            &[50, 40, 30],
        ] {
            assert_eq!(track(counts).urgency(Some(1024), 5.0), None, "{counts:?}");
        }
    }

    #[test]
    fn what_climbs_is_watched_from_its_second_step_on() {
        assert_eq!(track(&[10, 12]).urgency(Some(1024), 2.0), None);
        assert!(track(&[10, 11, 12]).urgency(Some(1024), 3.0).is_some());
        let slow = track(&[10, 11, 12]).urgency(None, 3.0).unwrap();
        let fast = track(&[10, 11, 12, 13, 14, 15]).urgency(None, 6.0).unwrap();
        assert!(fast > slow);
        assert_eq!(
            track(&[10, 11, 12]).urgency(None, 30_000.0),
            None,
            "long ago"
        );
    }

    #[test]
    fn near_the_limit_comes_first_whether_it_grows_or_not() {
        let near = track(&[900, 900]).urgency(Some(1024), 1.0).unwrap();
        let grows = track(&[1, 2, 3, 4, 5, 6]).urgency(Some(1024), 6.0).unwrap();
        assert!(near > grows);
        assert_eq!(track(&[900, 900]).urgency(Some(0), 1.0), None);
        assert_eq!(track(&[900, 900]).urgency(None, 1.0), None);
    }
}
