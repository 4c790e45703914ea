//! The lines above and below the list.

use fdguard_core::lint::Severity;
use fdguard_core::units::exact_duration;
use fdguard_core::wall;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use crate::report::host::{cell, mark, severity, wall_share};
use crate::terminal::sanitize_str;
use crate::tui::theme::Theme;
use crate::tui::top::state::TopState;
use crate::tui::widget::key_line;

/// The kernel uses a ceiling this large to mean that there is none.
const NO_CEILING: u64 = i64::MAX as u64;

/// The totals, the state of the list, and the first gap.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, app: &TopState, theme: &Theme) {
    let lines = [
        Some(totals(app, theme)),
        Some(state(app, theme)),
        gap(app, theme),
    ];
    for (line, row) in lines.into_iter().flatten().zip(area.rows()) {
        line.render(row, buffer);
    }
}

fn totals(app: &TopState, theme: &Theme) -> Line<'static> {
    let mut line = Line::from(Span::styled("fdguard top", theme.title()));
    if app.paused {
        line.push_span(Span::raw(" "));
        line.push_span(Span::styled("[paused]", theme.selected()));
    }
    let files = app.view.host.files;
    let share = files
        .used
        .zip(files.at)
        .and_then(|(used, at)| wall::percent(used, at));
    let ceiling = match files.at {
        Some(NO_CEILING..) => "no limit".to_owned(),
        at => format!("of {} ({} %)", cell::exact(at), cell::percent(share)),
    };
    let level = severity(share);
    line.push_span(Span::raw(format!(
        " · radar · every {} · {} processes · ",
        exact_duration(app.interval),
        app.view.rows.len()
    )));
    line.push_span(Span::styled(
        format!(
            "{}files {} {ceiling}",
            marked(level),
            cell::exact(files.used)
        ),
        theme.severity(level),
    ));
    line
}

/// A summary of all processes, and of what the list shows.
fn state(app: &TopState, theme: &Theme) -> Line<'static> {
    let rows = &app.view.rows;
    let of = |wanted| {
        let near = rows
            .iter()
            .filter(|row| severity(wall_share(row)) == wanted);
        near.count()
    };
    let critical = of(Some(Severity::Critical));
    let warning = of(Some(Severity::Warning));
    let unknown = rows.iter().filter(|row| row.count.is_none() && !row.zombie);
    let zombies = rows.iter().filter(|row| row.zombie).count();

    let mut line = Line::default();
    for (count, level, word) in [
        (critical, Severity::Critical, "critical"),
        (warning, Severity::Warning, "warning"),
    ] {
        let level = Some(level).filter(|_| count > 0);
        let text = format!("{}{count} {word} · ", marked(level));
        line.push_span(Span::styled(text, theme.severity(level)));
    }
    line.push_span(Span::raw(format!(
        "{} unknown · {zombies} zombie · by {}{}",
        unknown.count(),
        app.sort.name(),
        if app.reversed { ", reversed" } else { "" },
    )));
    if app.tree {
        line.push_span(Span::raw(" · tree"));
    }
    if !app.filter.is_empty() {
        let filter = sanitize_str(&app.filter).into_owned();
        let shown = app.entries.len();
        line.push_span(Span::styled(
            format!(" · \"{filter}\": {shown} of {}", rows.len()),
            theme.title(),
        ));
    }
    line
}

fn gap(app: &TopState, theme: &Theme) -> Option<Line<'static>> {
    let first = app.view.gaps.first()?;
    let others = match app.view.gaps.len() {
        1 => String::new(),
        all => format!("{} more, press ?; ", all - 1),
    };
    let text = format!(
        "gap: {others}{}: {}; {}",
        first.what, first.why, first.remedy
    );
    Some(Line::styled(sanitize_str(&text).into_owned(), theme.gap()))
}

/// The most used keys, or the filter while it is edited.
pub(super) fn draw_footer(buffer: &mut Buffer, area: Rect, app: &TopState, theme: &Theme) {
    let line = if app.editing {
        Line::from(vec![
            Span::styled("filter: ", theme.title()),
            Span::raw(sanitize_str(&app.filter).into_owned()),
            Span::styled(" ", theme.selected()),
            Span::styled("  enter applies, esc clears", theme.quiet()),
        ])
    } else {
        let keys = [
            ("?", "help"),
            ("q", if app.pane.is_some() { "back" } else { "quit" }),
            ("/", "filter"),
            ("s", "sort"),
            ("t", "tree"),
            ("d", "detail"),
            ("space", "pause"),
        ];
        key_line(keys, usize::from(area.width), theme)
    };
    line.render(area, buffer);
}

fn marked(level: Option<Severity>) -> String {
    match mark(level) {
        "" => String::new(),
        mark => format!("{mark} "),
    }
}
