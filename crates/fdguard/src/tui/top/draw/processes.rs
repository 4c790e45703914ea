//! The list of processes: only the lines that are on the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::column::{Column, columns};
use crate::report::host::{cell, severity, wall_share};
use crate::tui::theme::Theme;
use crate::tui::top::list::Entry;
use crate::tui::top::state::TopState;

/// The headings and the lines below them.
pub(super) fn draw(buffer: &mut Buffer, heading: Rect, area: Rect, app: &TopState, theme: &Theme) {
    let largest = app.view.rows.iter().map(|row| row.pid).max();
    let digits = largest.map_or(0, |pid| pid.to_string().len());
    let columns = columns(usize::from(area.width), digits, app.tree);
    headings(&columns, app, theme).render(heading, buffer);
    if app.entries.is_empty() {
        let text = if app.view.rows.is_empty() {
            "no process is visible"
        } else {
            "no process matches the filter"
        };
        Line::styled(text, theme.quiet()).render(area, buffer);
    }
    let shown = app.entries.iter().enumerate().skip(app.offset);
    for ((at, entry), row) in shown.zip(area.rows()) {
        line(&columns, entry, app, theme).render(row, buffer);
        if at == app.selection.cursor() {
            buffer.set_style(row, theme.selected());
        }
    }
}

fn headings(columns: &[(Column, usize)], app: &TopState, theme: &Theme) -> Line<'static> {
    let spans = columns.iter().flat_map(|(column, width)| {
        let style = if column.shows(app.sort) {
            theme.sorted()
        } else {
            theme.heading()
        };
        let text = aligned(*column, column.heading(), *width);
        [
            Span::styled(text, style),
            Span::styled(" ", theme.heading()),
        ]
    });
    Line::from_iter(spans)
}

fn line(
    columns: &[(Column, usize)],
    entry: &Entry,
    app: &TopState,
    theme: &Theme,
) -> Line<'static> {
    let Some(row) = app.view.rows.get(entry.row) else {
        return Line::default();
    };
    let level = theme.severity(severity(wall_share(row)));
    let spans = columns.iter().flat_map(|(column, width)| {
        let text = column.text(row, entry, &app.growth);
        let text = Span::raw(aligned(*column, &text, *width));
        let text = if column.is_telling() {
            text.style(level)
        } else {
            text
        };
        [text, Span::raw(" ")]
    });
    let line = Line::from_iter(spans);
    // Zombies and unreadable processes are dimmed: the others can still do harm.
    if row.count.is_none() {
        line.style(theme.quiet())
    } else {
        line
    }
}

fn aligned(column: Column, text: &str, width: usize) -> String {
    if column.leans_left() {
        cell::left(text, width)
    } else {
        cell::right(text, width)
    }
}
