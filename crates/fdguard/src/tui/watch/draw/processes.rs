//! The processes of a tree, each with its verdict.

use fdguard_core::judge::Verdict;
use fdguard_core::units::clock;
use fdguard_core::watch::WatchedProcess;
use ratatui::text::{Line, Span};

use super::Canvas;
use crate::report::diagnosis::word;
use crate::report::host::cell;
use crate::terminal::sanitize;
use crate::tui::theme::Theme;
use crate::tui::watch::state::WatchViewState;

/// A heading and a limited number of lines, the selected process among them.
pub(super) fn lines(canvas: Canvas<'_>, most: usize) -> Vec<Line<'static>> {
    let Some(room) = most.checked_sub(1).filter(|room| *room > 0) else {
        return Vec::new();
    };
    let state = canvas.state;
    let order = state.order(canvas.watch);
    let shown = state.current(canvas.watch).map(|subject| subject.id);
    let at = order.iter().position(|one| Some(one.id) == shown);
    let first = at.unwrap_or(0).saturating_sub(room - 1);
    let rows = order
        .iter()
        .skip(first)
        .take(room)
        .map(|one| row(canvas, one, Some(one.id) == shown));
    std::iter::once(heading(state, &order, canvas.theme))
        .chain(rows)
        .collect()
}

fn heading(state: &WatchViewState, order: &[&WatchedProcess], theme: &Theme) -> Line<'static> {
    let mut line = Line::from(Span::styled(
        format!("PROCESSES {}", order.len()),
        theme.heading(),
    ));
    for verdict in [Verdict::Leaking, Verdict::Growing] {
        let of = order.iter().filter(|one| state.verdict(one.id) == verdict);
        let count = of.count();
        if count > 0 {
            let text = format!("  {count} {}", word(verdict));
            line.push_span(Span::styled(text, theme.verdict(verdict)));
        }
    }
    line
}

fn row(canvas: Canvas<'_>, subject: &WatchedProcess, is_shown: bool) -> Line<'static> {
    let (verdict, theme) = (canvas.state.verdict(subject.id), canvas.theme);
    let mark = if is_shown { "▸ " } else { "  " };
    let timeline = &subject.timeline;
    let ended = match subject.gone {
        Some(at) => format!("  exited at {}", clock(at)),
        None => String::new(),
    };
    let numbers = format!(
        "  {} of {}{ended}",
        cell::compact(timeline.count()),
        cell::compact(timeline.limits().soft)
    );
    let name = cell::left(
        &sanitize(&subject.process.comm),
        canvas.width.saturating_sub(34).clamp(6, 16),
    );
    let line = Line::from(vec![
        Span::raw(format!("{mark}{:>7} {name} ", subject.process.pid)),
        Span::styled(format!("{:7}", word(verdict)), theme.verdict(verdict)),
        Span::raw(numbers),
    ]);
    if subject.gone.is_some() {
        line.style(theme.quiet())
    } else {
        line
    }
}
