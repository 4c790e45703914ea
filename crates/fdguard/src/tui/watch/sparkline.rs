//! A history as a row of blocks.

use fdguard_core::timeline::{RINGS, Timeline, Track};

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A number over the whole time of a watch, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    values: Vec<u32>,
    /// The overall minimum: each value is the maximum of its interval.
    least: u32,
    /// Whether each value is a single look.
    is_exact: bool,
}

impl History {
    /// The history of a track, from the finest ring that reaches back to the start. All tracks of a
    /// timeline use the same ring, so that simultaneous events share a column.
    pub(super) fn of(timeline: &Timeline, track: &Track) -> Self {
        let covers = |ring: &usize| timeline.total().ring(*ring).all.past().is_none();
        let ring = (0..RINGS).find(covers).unwrap_or(RINGS - 1);
        let length = timeline.grid().ends(ring).len();
        let buckets = track.ring(ring).all.padded(length);
        Self {
            values: buckets.iter().map(|bucket| bucket.max).collect(),
            least: buckets.iter().map(|bucket| bucket.min).min().unwrap_or(0),
            is_exact: ring == 0,
        }
    }

    /// Minimum and maximum; `None` before the first look.
    pub(super) fn range(&self) -> Option<(u32, u32)> {
        let most = self.values.iter().max()?;
        Some((self.least, *most))
    }

    /// As a picture of `width` columns and `height` rows, the top row first. A few looks are not
    /// stretched: they take one column each.
    pub(super) fn picture(&self, width: usize, height: usize) -> Vec<String> {
        let Some((least, most)) = self.range() else {
            return vec![String::new(); height];
        };
        let columns = self.columns(width);
        // A change of one or two among hundreds must not look like a mountain.
        let span = (most - least).max(4).max(most / 8);
        let steps = u64::try_from(height * BLOCKS.len()).unwrap_or(u64::MAX);
        let level = |value: u32| {
            let share = u64::from(value - least) * steps.saturating_sub(1) / u64::from(span);
            usize::try_from(share).unwrap_or(usize::MAX)
        };
        let row = |from_top: usize| {
            let below = (height - 1 - from_top) * BLOCKS.len();
            let block = |value: &u32| match level(*value).checked_sub(below) {
                None => ' ',
                Some(part) => BLOCKS[part.min(BLOCKS.len() - 1)],
            };
            columns.iter().map(block).collect()
        };
        (0..height).map(row).collect()
    }

    /// One value per column: the highest of those that share it.
    fn columns(&self, width: usize) -> Vec<u32> {
        let length = self.values.len();
        let width = if self.is_exact {
            width.min(length)
        } else {
            width
        };
        let column = |at: usize| {
            let from = at * length / width;
            let to = ((at + 1) * length / width).max(from + 1);
            self.values[from..to].iter().copied().max().unwrap_or(0)
        };
        (0..width).map(column).collect()
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::timeline::{Look, Timeline};

    use super::History;

    fn exact(values: &[u32]) -> History {
        History {
            values: values.to_vec(),
            least: values.iter().copied().min().unwrap_or(0),
            is_exact: true,
        }
    }

    fn one_row(history: &History, width: usize) -> String {
        history.picture(width, 1).concat()
    }

    #[test]
    fn a_rise_climbs_and_a_level_stays_low() {
        let rise = exact(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(one_row(&rise, 20), "▁▂▃▄▅▆▇█");
        assert_eq!(one_row(&exact(&[500; 4]), 20), "▁▁▁▁");
        assert_eq!(one_row(&exact(&[500, 501, 500]), 20), "▁▁▁");
    }

    #[test]
    fn many_looks_share_a_column_and_show_their_highest() {
        let spike = exact(&[0, 0, 0, 90, 0, 0, 0, 0]);
        assert_eq!(one_row(&spike, 4), "▁█▁▁");
    }

    #[test]
    fn a_coarse_ring_fills_the_width() {
        let coarse = History {
            values: vec![0, 8],
            least: 0,
            is_exact: false,
        };
        assert_eq!(one_row(&coarse, 6), "▁▁▁███");
    }

    #[test]
    fn a_tall_picture_fills_from_below() {
        let picture = exact(&[0, 7, 15]).picture(9, 2);
        assert_eq!(picture, ["  █", "▁██"]);
    }

    #[test]
    fn nothing_seen_is_nothing_drawn() {
        assert_eq!(one_row(&History::default(), 10), "");
        assert_eq!(one_row(&exact(&[1, 2]), 0), "");
        assert!(exact(&[1, 2]).picture(5, 0).is_empty());
    }

    #[test]
    fn a_long_watch_is_shown_from_its_first_look() {
        let mut timeline = Timeline::new();
        for tick in 0..2000_u32 {
            timeline.observe(&Look {
                at: f64::from(tick),
                count: Some(u64::from(10 + tick)),
                ..Look::default()
            });
        }
        let history = History::of(&timeline, timeline.total());
        assert_eq!(history.range(), Some((10, 2009)));
        assert_eq!(one_row(&history, 30).chars().count(), 30);
    }
}
