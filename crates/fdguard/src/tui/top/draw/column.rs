//! The columns of the list, and which of them fit.

use fdguard_core::growth::Growth;
use fdguard_core::host::HostRow;

use crate::report::host::{cell, mark, severity, wall_share};
use crate::tui::top::list::Entry;
use crate::tui::top::order::Sort;

/// A column of the list, in the order on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    Mark,
    Pid,
    Uid,
    Count,
    Family,
    Soft,
    Percent,
    Peak,
    Grown,
    GrownInFull,
    Wall,
    WallInFull,
    Left,
    Command,
}

/// The columns by priority, the most important first. Long forms replace short ones if there is
/// room.
const PRIORITY: &[Column] = &[
    Column::Mark,
    Column::Count,
    Column::Pid,
    Column::Wall,
    Column::Percent,
    Column::Family,
    Column::Grown,
    Column::Soft,
    Column::Left,
    Column::Peak,
    Column::WallInFull,
    Column::GrownInFull,
    Column::Uid,
];

/// The columns for this width, each with its own width. Pids take only what they need: on most
/// hosts that leaves room for a whole name.
pub(super) fn columns(width: usize, pid_width: usize, tree: bool) -> Vec<(Column, usize)> {
    // A command name has at most 15 characters; in the tree it is indented.
    let least = if tree { 20 } else { 10 };
    let wide = |column: Column| match column {
        Column::Pid => pid_width.max(5),
        column => column.width(),
    };
    let mut chosen: Vec<Column> = Vec::new();
    let mut room = width.saturating_sub(least);
    for column in PRIORITY {
        if *column == Column::Family && !tree {
            continue;
        }
        let short = column.short_form().filter(|short| chosen.contains(short));
        let freed = short.map_or(0, |short| wide(short) + 1);
        let Some(rest) = (room + freed).checked_sub(wide(*column) + 1) else {
            break;
        };
        chosen.retain(|other| Some(*other) != short);
        chosen.push(*column);
        room = rest;
    }
    chosen.sort_unstable();
    let used: usize = chosen.iter().map(|column| wide(*column) + 1).sum();
    let mut columns: Vec<_> = chosen.into_iter().map(|c| (c, wide(c))).collect();
    columns.push((Column::Command, width.saturating_sub(used)));
    columns
}

impl Column {
    fn width(self) -> usize {
        match self {
            Self::Mark => 2,
            Self::Uid | Self::Count | Self::Soft | Self::Grown => 6,
            Self::Pid | Self::Family => 7,
            Self::Percent | Self::Left => 5,
            Self::Peak => 9,
            Self::Wall => 11,
            Self::GrownInFull => 22,
            Self::WallInFull => 21,
            Self::Command => 0,
        }
    }

    fn short_form(self) -> Option<Self> {
        match self {
            Self::GrownInFull => Some(Self::Grown),
            Self::WallInFull => Some(Self::Wall),
            _ => None,
        }
    }

    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Mark => "",
            Self::Pid => "PID",
            Self::Uid => "UID",
            Self::Count => "COUNT",
            Self::Family => "TREE",
            Self::Soft => "SOFT",
            Self::Percent => "%SOFT",
            Self::Peak => "PEAK",
            Self::Grown | Self::GrownInFull => "GROWN",
            Self::Wall | Self::WallInFull => "HEADROOM",
            Self::Left => "ETA",
            Self::Command => "COMMAND",
        }
    }

    /// Whether the list is sorted by this column.
    pub(super) fn shows(self, sort: Sort) -> bool {
        self.heading().eq_ignore_ascii_case(sort.name())
    }

    /// Whether its text has the colour of the row's severity.
    pub(super) fn is_telling(self) -> bool {
        matches!(
            self,
            Self::Mark | Self::Count | Self::Percent | Self::Wall | Self::WallInFull
        )
    }

    pub(super) fn leans_left(self) -> bool {
        matches!(self, Self::Mark | Self::Command)
    }

    pub(super) fn text(self, row: &HostRow, entry: &Entry, growth: &Growth) -> String {
        match self {
            Self::Mark => mark(severity(wall_share(row))).to_owned(),
            Self::Pid => row.pid.to_string(),
            Self::Uid => cell::exact(row.uid.map(u64::from)),
            Self::Count => cell::compact(row.count),
            Self::Family => family(entry),
            Self::Soft => cell::compact(row.limits.soft),
            Self::Percent => cell::percent(row.percent_of_soft()),
            Self::Peak => cell::peak(row, cell::compact),
            Self::Grown => cell::grown(growth.of_row(row)),
            Self::GrownInFull => cell::grown_in_full(growth.of_row(row)),
            Self::Wall => cell::wall(row.nearest_wall()),
            Self::WallInFull => cell::wall_in_full(row.nearest_wall()),
            Self::Left => cell::time_left(row, growth),
            Self::Command => format!("{}{}", entry.guides, cell::command(row)),
        }
    }
}

/// What a family holds; empty for a process without one. If a member is unreadable, the sum is a
/// lower bound.
fn family(entry: &Entry) -> String {
    let Some(family) = entry.family.filter(|family| family.members > 1) else {
        return String::new();
    };
    let sum = cell::compact(Some(family.count));
    match family.unknown {
        0 => sum,
        unknown if unknown == family.members => cell::UNKNOWN.to_owned(),
        _ => format!("≥{sum}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Column, columns};

    fn chosen(width: usize, tree: bool) -> Vec<Column> {
        columns(width, 7, tree).into_iter().map(|c| c.0).collect()
    }

    #[test]
    fn a_screen_of_eighty_columns_shows_everything_but_the_user() {
        let columns = chosen(80, false);
        assert!(columns.contains(&Column::Peak) && columns.contains(&Column::Left));
        assert!(!columns.contains(&Column::Uid));
    }

    #[test]
    fn a_wide_screen_shows_the_long_forms_instead_of_the_short_ones() {
        let columns = chosen(160, true);
        assert!(columns.contains(&Column::GrownInFull) && columns.contains(&Column::Uid));
        assert!(!columns.contains(&Column::Grown) && !columns.contains(&Column::Wall));
    }

    #[test]
    fn columns_never_need_more_than_there_is() {
        for width in 0..200 {
            for tree in [false, true] {
                let columns = columns(width, 4, tree);
                let used: usize = columns.iter().map(|c| c.1 + 1).sum();
                assert!(used <= width + 1, "{width}: {columns:?}");
                assert_eq!(columns.last().map(|c| c.0), Some(Column::Command));
            }
        }
    }
}
