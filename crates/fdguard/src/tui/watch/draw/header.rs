//! The watched process, its verdict, and its number of descriptors.

use fdguard_core::count::{as_f64, difference};
use fdguard_core::units::clock;
use fdguard_core::wall;
use fdguard_core::watch::{Watch, WatchedProcess};
use ratatui::text::{Line, Span};

use super::Canvas;
use crate::report::diagnosis::word;
use crate::report::host::cell;
use crate::report::table::counted;
use crate::terminal::{sanitize, sanitize_str};
use crate::tui::theme::Theme;
use crate::tui::watch::phrase;
use crate::tui::watch::state::WatchViewState;

/// Name, pid, verdict, time watched and number of samples, as far as they fit.
pub(super) fn title(canvas: Canvas<'_>) -> Line<'static> {
    let (state, watch, theme) = (canvas.state, canvas.watch, canvas.theme);
    let Some(subject) = state.current(watch) else {
        let text = format!("waiting for {}", state.name);
        return Line::styled(text, theme.quiet());
    };
    let verdict = state.verdict(subject.id);
    let name = format!("{} {}", name(state, watch, subject), subject.process.pid);
    let room = canvas.width.saturating_sub(10);
    let mut line = Line::from(vec![
        Span::styled(cell::cut(&name, room), theme.title()),
        Span::raw("  "),
        Span::styled(word(verdict), theme.verdict(verdict)),
    ]);
    let watched = match state.ends_after {
        Some(end) => format!("{} of {}", clock(watch.at()), clock(end)),
        None => clock(watch.at()),
    };
    let gone = subject.gone.map(|at| format!("exited at {}", clock(at)));
    let looks = counted(subject.timeline.looks(), "sample");
    let every = phrase::every(watch.header().every);
    let facts = [gone, Some(watched), Some(looks), Some(every)];
    push_facts(&mut line, facts.into_iter().flatten(), canvas.width, "  ");
    line
}

/// The user's name for it, if only one process can be meant.
fn name(state: &WatchViewState, watch: &Watch, subject: &WatchedProcess) -> String {
    let is_only = watch.subjects().count() == 1;
    if is_only && !state.name.is_empty() {
        return state.name.clone();
    }
    match sanitize(&subject.process.comm) {
        comm if comm.is_empty() => cell::UNKNOWN.to_owned(),
        comm => comm,
    }
}

/// Adds facts while there is room, separated by dots.
fn push_facts(
    line: &mut Line<'static>,
    facts: impl Iterator<Item = String>,
    width: usize,
    first: &'static str,
) {
    let mut between = first;
    for fact in facts {
        let fact = Span::raw(format!("{between}{fact}"));
        if line.width() + fact.width() > width {
            break;
        }
        line.push_span(fact);
        between = " · ";
    }
}

/// The count, its limit, and the growth since the start.
pub(super) fn counts(canvas: Canvas<'_>) -> Option<Line<'static>> {
    let subject = canvas.state.current(canvas.watch)?;
    let timeline = &subject.timeline;
    let (count, soft) = (timeline.count(), timeline.limits().soft);
    let percent = count
        .zip(soft)
        .and_then(|(count, soft)| wall::percent(count, soft));
    let share = percent.map_or_else(String::new, |percent| format!(" ({percent:.0} %)"));
    let text = format!(
        "count {} of {}{share}",
        cell::exact(count),
        cell::exact(soft)
    );
    let level = canvas.state.levels.judge(percent, count);
    let mut line = Line::from(Span::styled(text, canvas.theme.severity(level)));
    let highest = timeline.highest().map(|fd| format!("highest {fd}"));
    let grown = timeline
        .baseline()
        .zip(count)
        .map(|(before, now)| match difference(before, now) {
            0 => "no change since the start".to_owned(),
            grown => format!("{grown:+} since the start"),
        });
    let facts = [highest, grown].into_iter().flatten();
    push_facts(&mut line, facts, canvas.width, " · ");
    Some(line)
}

/// All descriptors over time, between minimum and maximum.
pub(super) fn history(canvas: Canvas<'_>, height: usize) -> Vec<Line<'static>> {
    let (state, theme) = (canvas.state, canvas.theme);
    let judged = state
        .current(canvas.watch)
        .and_then(|one| state.judged(one.id));
    let Some((judged, (least, most))) = judged.and_then(|j| Some((j, j.total.range()?))) else {
        return vec![Line::default(); height];
    };
    let style = theme.verdict(judged.opinion.verdict);
    let label = |number: u32| Span::styled(number.to_string(), theme.quiet());
    let edge = most.to_string().len();
    let pictured = |room: usize| judged.total.picture(room, height).into_iter();
    if height == 1 {
        let room = canvas.width.saturating_sub(2 * edge + 2);
        return pictured(room)
            .map(|row| {
                let row = Span::styled(row, style);
                Line::from(vec![label(least), " ".into(), row, " ".into(), label(most)])
            })
            .collect();
    }
    pictured(canvas.width.saturating_sub(edge + 1))
        .enumerate()
        .map(|(at, row)| {
            let mark = match at {
                0 => most.to_string(),
                at if at + 1 == height => least.to_string(),
                _ => String::new(),
            };
            let mark = Span::styled(format!("{mark:>edge$} "), theme.quiet());
            Line::from(vec![mark, Span::styled(row, style)])
        })
        .collect()
}

/// How much could not be seen.
pub(super) fn gaps(watch: &Watch, theme: &Theme, width: usize) -> Line<'static> {
    let Some(first) = watch.gaps().first() else {
        return Line::default();
    };
    let count = watch.gaps().len() as u64;
    let text = format!("{}: {}: {}", counted(count, "gap"), first.what, first.why);
    Line::styled(cell::cut(&sanitize_str(&text), width), theme.quiet())
}

/// A bar of `columns` columns.
pub(super) fn bar(percent: f64, columns: usize) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a few columns, and a cast of a float saturates"
    )]
    let full = (percent / 100.0 * as_f64(columns as u64)).round() as usize;
    let full = full.min(columns);
    format!("{}{}", "█".repeat(full), "░".repeat(columns - full))
}
