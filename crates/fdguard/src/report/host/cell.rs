//! The text in the cells of the radar. Unknown is `?`, never 0; `-` means "does not exist".

use fdguard_core::growth::{Growth, ProcessGrowth};
use fdguard_core::host::{HostRow, NearestWall};
use fdguard_core::units::narrow_duration;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::terminal::sanitize_str;

/// An unknown value.
pub const UNKNOWN: &str = "?";
/// A value that does not exist.
pub const NONE: &str = "-";

/// A number in full.
#[must_use]
pub fn exact(number: Option<u64>) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), |number| number.to_string())
}

/// A number in at most six columns.
#[must_use]
pub fn compact(number: Option<u64>) -> String {
    let Some(number) = number else {
        return UNKNOWN.to_owned();
    };
    let scaled = [
        (1_000_000_000_000_000, "P"),
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
    ]
    .into_iter()
    .find(|(unit, _)| number >= *unit);
    match scaled {
        Some((unit, letter)) if number / unit < 10 => {
            format!("{}.{}{letter}", number / unit, number % unit / (unit / 10))
        }
        Some((unit, letter)) => format!("{}{letter}", number / unit),
        None => number.to_string(),
    }
}

/// A share in percent, without the sign.
#[must_use]
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.to_owned(), |share| format!("{share:.1}"))
}

/// The range of the highest number ever used, with the numbers formatted by `number`.
#[must_use]
pub fn peak(row: &HostRow, number: fn(Option<u64>) -> String) -> String {
    match row.peak_band() {
        None => UNKNOWN.to_owned(),
        Some((0, highest)) => format!("≤{}", number(Some(highest))),
        Some((lowest, highest)) => {
            format!("{}–{}", number(Some(lowest)), number(Some(highest)))
        }
    }
}

/// Growth since the watch began: `+12`.
#[must_use]
pub fn grown(grown: Option<ProcessGrowth>) -> String {
    grown.map_or_else(
        || UNKNOWN.to_owned(),
        |grown| match grown.delta {
            0 => "0".to_owned(),
            delta => format!("{delta:+}"),
        },
    )
}

/// The same with time and rate: `+12 in 3m, 4.0/min`.
#[must_use]
pub fn grown_in_full(growth: Option<ProcessGrowth>) -> String {
    let Some(since) = growth else {
        return UNKNOWN.to_owned();
    };
    let short = format!("{} in {}", grown(growth), narrow_duration(since.since));
    match since.per_minute {
        Some(rate) if since.delta != 0 => format!("{short}, {rate:.1}/min"),
        _ => short,
    }
}

/// The nearest limit in few columns: `26 soft`.
#[must_use]
pub fn wall(wall: Option<NearestWall>) -> String {
    wall.map_or_else(
        || UNKNOWN.to_owned(),
        |wall| {
            let name = wall.name.split('-').next().unwrap_or(wall.name);
            format!("{} {name}", compact(Some(wall.left)))
        },
    )
}

/// The nearest limit in words: `26 to soft-limit`.
#[must_use]
pub fn wall_in_full(wall: Option<NearestWall>) -> String {
    wall.map_or_else(
        || UNKNOWN.to_owned(),
        |wall| match wall.left {
            0 => format!("at {}", wall.name),
            left => format!("{left} to {}", wall.name),
        },
    )
}

/// The time left to the nearest limit; `-` if it is not approached, `?` if unknown.
#[must_use]
pub fn time_left(row: &HostRow, growth: &Growth) -> String {
    match (growth.time_left(row), growth.of_row(row)) {
        (Some(left), _) => narrow_duration(left),
        (None, Some(_)) => NONE.to_owned(),
        (None, None) => UNKNOWN.to_owned(),
    }
}

/// The sanitised command name, with a mark for zombies.
#[must_use]
pub fn command(row: &HostRow) -> String {
    let name = row.comm.to_lossy();
    let name = match &*name {
        "" => UNKNOWN.into(),
        name => sanitize_str(name),
    };
    if row.zombie {
        return format!("{name} (zombie)");
    }
    match row.workload.as_ref().and_then(|one| one.label()) {
        Some(label) => format!("{name}  {}", sanitize_str(&label)),
        None => name.into_owned(),
    }
}

/// Cuts text to a number of columns, with an ellipsis if something is missing.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(1) else {
        return String::new();
    };
    let mut used = 0;
    let mut short: String = text
        .chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= room
        })
        .collect();
    short.push('…');
    short
}

/// Text right-aligned in exactly `columns` columns.
#[must_use]
pub fn right(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let blank = columns.saturating_sub(text.width());
    format!("{:blank$}{text}", "")
}

/// Text left-aligned in exactly `columns` columns.
#[must_use]
pub fn left(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let blank = columns.saturating_sub(text.width());
    format!("{text}{:blank$}", "")
}

#[cfg(test)]
mod tests {
    use fdguard_core::host::HostRow;
    use unicode_width::UnicodeWidthStr as _;

    use super::{compact, cut, exact, left, peak, right};

    #[test]
    fn large_numbers_fit_into_six_columns() {
        let cases = [
            (999_999, "999999"),
            (1_048_576, "1.0M"),
            (10_485_760, "10M"),
            (1_073_741_816, "1.0G"),
            (u64::MAX, "18446P"),
        ];
        for (number, text) in cases {
            assert_eq!(compact(Some(number)), text);
        }
        assert_eq!(compact(None), "?");
    }

    #[test]
    fn the_peak_is_a_band_and_never_a_point() {
        let row = |table_size| HostRow {
            table_size,
            ..HostRow::default()
        };
        assert_eq!(peak(&row(Some(1024)), exact), "512–1023");
        assert_eq!(peak(&row(Some(256)), exact), "≤255");
        assert_eq!(peak(&row(None), exact), "?");
    }

    #[test]
    fn wide_characters_are_cut_by_columns_and_not_by_letters() {
        assert_eq!(cut("名前名前", 5), "名前…");
        assert_eq!(cut("名前名前", 4), "名…");
        assert_eq!(cut("名前", 4), "名前");
        assert_eq!(cut("ab", 0), "");
        assert_eq!(left("名前名前", 4).width(), 4);
        assert_eq!(right("x", 3), "  x");
    }
}
