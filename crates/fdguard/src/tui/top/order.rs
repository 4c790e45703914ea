//! The sort orders of the list.

use fdguard_core::count::as_f64;
use fdguard_core::growth::Growth;
use fdguard_core::host::HostRow;

use crate::report::host::wall_share;

/// The quantity to sort by. Largest first, except time and pid: smallest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Share of the nearest limit.
    #[default]
    Wall,
    /// Share of the soft limit.
    Percent,
    /// Number of descriptors.
    Count,
    /// Growth since the watch began.
    Growth,
    /// Time left to the nearest limit.
    TimeLeft,
    /// Process number.
    Pid,
}

impl Sort {
    const ALL: [Self; 6] = [
        Self::Wall,
        Self::Percent,
        Self::Count,
        Self::Growth,
        Self::TimeLeft,
        Self::Pid,
    ];

    /// The next order, for the key that cycles.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self);
        let next = at.map_or(0, |at| (at + 1) % Self::ALL.len());
        Self::ALL[next]
    }

    /// The label on the screen, and the heading of its column.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wall => "headroom",
            Self::Percent => "%soft",
            Self::Count => "count",
            Self::Growth => "grown",
            Self::TimeLeft => "eta",
            Self::Pid => "pid",
        }
    }

    /// The quantity of one row as a number that is larger for rows that come first; `None` if
    /// unknown.
    #[must_use]
    pub fn rank(self, row: &HostRow, growth: &Growth) -> Option<f64> {
        match self {
            Self::Wall => wall_share(row),
            Self::Percent => row.percent_of_soft(),
            Self::Count => row.count.map(as_f64),
            #[expect(
                clippy::cast_precision_loss,
                reason = "counts of descriptors are far below 2^52"
            )]
            Self::Growth => growth.of_row(row).map(|grown| grown.delta as f64),
            Self::TimeLeft => growth.time_left(row).map(|left| -left.as_secs_f64()),
            Self::Pid => Some(-f64::from(row.pid)),
        }
    }

    /// The rank of a whole family: the sum of what its members hold, otherwise the rank of the
    /// worst member.
    #[must_use]
    pub fn join(self, a: Option<f64>, b: Option<f64>) -> Option<f64> {
        match (a, b) {
            // A family sorts by its root's pid, whatever its children are.
            (Some(own), _) if self == Self::Pid => Some(own),
            (Some(a), Some(b)) if matches!(self, Self::Count | Self::Growth) => Some(a + b),
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Sort;

    #[test]
    fn the_cycle_visits_every_order_and_comes_back() {
        let mut sort = Sort::Wall;
        for _ in Sort::ALL {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Wall);
    }
}
