//! The table of `top --once`.

use super::cell;
use super::{by_wall, mark, severity, wall_share};
use crate::report::table::{Side, columns as laid_out};
use crate::terminal::sanitize_str;
use fdguard_core::growth::Growth;
use fdguard_core::host::{HostRow, HostView};

/// How the table is laid out.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableOptions {
    /// Columns of the terminal; `None` in a pipe, where nothing is cut.
    pub width: Option<usize>,
    /// The maximum number of processes; `None` for all.
    pub limit: Option<usize>,
}

/// A column's heading and alignment.
struct Column {
    heading: &'static str,
    side: Side,
    text: fn(&HostRow, &Growth) -> String,
}

const fn number(heading: &'static str, text: fn(&HostRow, &Growth) -> String) -> Column {
    Column {
        heading,
        side: Side::Right,
        text,
    }
}

const fn left(heading: &'static str, text: fn(&HostRow, &Growth) -> String) -> Column {
    Column {
        heading,
        side: Side::Left,
        text,
    }
}

/// The columns, in order. GROWN and ETA exist only after a watch.
const COLUMNS: &[Column] = &[
    left("", |row, _| mark(severity(wall_share(row))).to_owned()),
    number("PID", |row, _| row.pid.to_string()),
    number("UID", |row, _| cell::exact(row.uid.map(u64::from))),
    number("COUNT", |row, _| cell::exact(row.count)),
    number("SOFT", |row, _| cell::exact(row.limits.soft)),
    number("%SOFT", |row, _| cell::percent(row.percent_of_soft())),
    number("PEAK", |row, _| cell::peak(row, cell::exact)),
    number("GROWN", |row, growth| {
        cell::grown_in_full(growth.of_row(row))
    }),
    number("HEADROOM", |row, _| cell::wall_in_full(row.nearest_wall())),
    number("ETA", cell::time_left),
    left("COMMAND", |row, _| cell::command(row)),
];

/// The processes as a table, the nearest to its limit first, then a line for each gap.
#[must_use]
pub fn table(view: &HostView, growth: Option<&Growth>, options: TableOptions) -> String {
    let never = Growth::new();
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .filter(|column| growth.is_some() || !matches!(column.heading, "GROWN" | "ETA"))
        .collect();
    let growth = growth.unwrap_or(&never);
    let mut rows = by_wall(&view.rows);
    let all = rows.len();
    rows.truncate(options.limit.unwrap_or(all));

    let mut lines = vec![columns.iter().map(|c| c.heading.to_owned()).collect()];
    lines.extend(rows.iter().map(|row| {
        let cells = columns.iter().map(|column| (column.text)(row, growth));
        cells.collect::<Vec<String>>()
    }));
    let sides: Vec<Side> = columns.iter().map(|column| column.side).collect();
    let mut text = laid_out(&lines, &sides, options.width).join("\n");
    text.push('\n');
    if rows.len() < all {
        text.push_str(&format!("… {} more\n", all - rows.len()));
    }
    for gap in &view.gaps {
        text.push_str(&sanitize_str(&format!(
            "gap: {}: {}; {}",
            gap.what, gap.why, gap.remedy
        )));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::{TableOptions, table};
    use crate::tui::top::fixture;

    #[test]
    fn the_table_shows_the_nearest_wall_first_and_the_gaps_last() {
        let (view, growth) = fixture::watched();
        insta::assert_snapshot!(table(&view, Some(&growth), TableOptions::default()));
    }

    #[test]
    fn a_single_look_has_no_column_for_growth() {
        let text = table(&fixture::view(), None, TableOptions::default());
        let heading = text.lines().next().unwrap();
        assert!(!heading.contains("GROWN") && !heading.contains("ETA"));
    }

    #[test]
    fn only_the_command_is_cut_and_only_on_a_terminal() {
        let mut view = fixture::view();
        view.rows[1].comm = "a-command-with-a-very-long-name-indeed".into();
        let piped = table(&view, None, TableOptions::default());
        assert!(piped.contains("a-command-with-a-very-long-name-indeed"));
        let options = TableOptions {
            width: Some(80),
            limit: None,
        };
        let cut = table(&view, None, options);
        let rows = cut.lines().filter(|line| !line.starts_with("gap:"));
        assert!(rows.into_iter().all(|line| line.width() <= 80), "{cut}");
        assert!(cut.contains('…'));
    }

    #[test]
    fn a_limit_says_how_many_were_left_out() {
        let options = TableOptions {
            width: None,
            limit: Some(2),
        };
        let text = table(&fixture::view(), None, options);
        assert!(text.contains("… 8 more"), "{text}");
    }
}
