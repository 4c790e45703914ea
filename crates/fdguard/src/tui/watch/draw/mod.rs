//! Draws a watch. Reads it and the state, changes neither.

use fdguard_core::watch::Watch;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::state::WatchViewState;
use crate::report::table::counted;
use crate::tui::theme::Theme;
use crate::tui::widget::key_line;

mod classes;
mod findings;
mod header;
mod pane;
mod processes;
mod walls;

pub(super) use pane::extent as pane_extent;

/// From this many rows on, the overall history is worth a row.
const TALL: u16 = 32;

/// If all sections together have at most this many rows, none has a heading.
const SPARSE: u16 = 9;

/// Below this many rows, only the most important parts are shown.
const CRAMPED: u16 = 8;

/// A part of the screen with flexible height.
struct Section {
    heading: Line<'static>,
    lines: Vec<Line<'static>>,
    /// The lines that must stay visible.
    focus: std::ops::Range<usize>,
    /// With fewer lines it is of little use.
    least: usize,
}

/// What is drawn, with which colours, and how wide.
#[derive(Clone, Copy)]
struct Canvas<'a> {
    state: &'a WatchViewState,
    watch: &'a Watch,
    theme: &'a Theme,
    width: usize,
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &WatchViewState, watch: &Watch, theme: &Theme) {
    let area = frame.area();
    let width = usize::from(area.width);
    let canvas = Canvas {
        state,
        watch,
        theme,
        width,
    };
    let buffer = frame.buffer_mut();
    let (body, footer) = split_bottom(area, u16::from(area.height >= CRAMPED));
    footer_line(canvas).render(footer, buffer);
    let (body, gaps) = split_bottom(
        body,
        u16::from(!watch.gaps().is_empty() && area.height >= CRAMPED),
    );
    header::gaps(watch, theme, width).render(gaps, buffer);
    let body = top(canvas, buffer, body);
    let Some(subject) = state.current(watch) else {
        return;
    };
    let judged = state.judged(subject.id);
    let sections = [
        walls::section(canvas, subject, judged),
        classes::section(canvas, subject, judged),
        findings::section(canvas, area.height >= TALL),
    ];
    stack(buffer, body, &sections);
    if let Some(pane) = state.pane {
        pane::draw(canvas, buffer, pane_area(area), pane);
    }
}

/// Draws the fixed lines, and the processes if there are several; returns the rest of the area.
fn top(canvas: Canvas<'_>, buffer: &mut Buffer, area: Rect) -> Rect {
    let history = match area.height {
        ..6 => 0,
        6..TALL => 1,
        _ => 4,
    };
    let several = canvas.watch.subjects().count() > 1 && area.height >= CRAMPED;
    let most = if several { area.height / 4 } else { 0 };
    let processes = processes::lines(canvas, usize::from(most));
    let lines = std::iter::once(header::title(canvas))
        .chain(processes)
        .chain(header::counts(canvas))
        .chain(header::history(canvas, history));
    let lines: Vec<Line<'static>> = lines.collect();
    let (used, rest) = split_top(area, rows(lines.len()));
    for (line, row) in lines.into_iter().zip(used.rows()) {
        line.render(row, buffer);
    }
    rest
}

/// The keys, as many as fit.
fn footer_line(canvas: Canvas<'_>) -> Line<'static> {
    let (state, watch) = (canvas.state, canvas.watch);
    let is_open = state.pane.is_some();
    let several = watch.subjects().count() > 1;
    let keys = [
        ("q", if is_open { "back" } else { "quit" }, true),
        ("j/k", "select", !state.findings(watch).is_empty()),
        (
            "enter",
            if is_open { "close" } else { "full text" },
            !state.findings(watch).is_empty(),
        ),
        ("tab", "next process", several),
        ("g", "gaps", !watch.gaps().is_empty()),
        ("?", "help", true),
    ];
    let useful = keys.into_iter().filter(|(_, _, is_of_use)| *is_of_use);
    key_line(
        useful.map(|(key, word, _)| (key, word)),
        canvas.width,
        canvas.theme,
    )
}

/// Draws the sections below each other. Each gets its minimum, then one more row in turn while
/// there are any.
fn stack(buffer: &mut Buffer, area: Rect, sections: &[Section]) {
    // If there is little room, lines matter more than headings.
    let heading = usize::from(area.height > SPARSE);
    let wants: Vec<(usize, usize)> = sections
        .iter()
        .map(|section| (section.least + heading, section.lines.len() + heading))
        .collect();
    let mut rest = area;
    for (section, height) in sections.iter().zip(share(usize::from(area.height), &wants)) {
        let (mine, below) = split_top(rest, rows(height));
        section.draw(buffer, mine, heading > 0);
        rest = below;
    }
}

/// Divides rows by the minimum and maximum that each part wants. The last part is the most
/// important.
fn share(room: usize, wants: &[(usize, usize)]) -> Vec<usize> {
    let least: Vec<usize> = wants.iter().map(|(least, most)| *least.min(most)).collect();
    let most: Vec<usize> = wants.iter().map(|(_, most)| *most).collect();
    let mut given = vec![0; wants.len()];
    let mut left = room;
    for goals in [least, most] {
        while left > 0 && given != goals {
            for (given, goal) in given.iter_mut().zip(&goals).rev() {
                let one = usize::from(left > 0 && *given < *goal);
                *given += one;
                left -= one;
            }
        }
    }
    given
}

impl Section {
    fn draw(&self, buffer: &mut Buffer, area: Rect, headed: bool) {
        let (heading, area) = split_top(area, u16::from(headed));
        let room = usize::from(area.height);
        self.title(room, usize::from(area.width))
            .render(heading, buffer);
        let shown = self.lines.iter().skip(self.first(room));
        for (line, row) in shown.zip(area.rows()) {
            line.render(row, buffer);
        }
    }

    /// The heading, with the number of hidden lines if there is room.
    fn title(&self, room: usize, width: usize) -> Line<'static> {
        let mut title = self.heading.clone();
        let hidden = self.lines.len().saturating_sub(room);
        let hidden_in_words = counted(hidden as u64, "more line");
        let more = Span::raw(format!("  {hidden_in_words}"));
        if hidden > 0 && title.width() + more.width() <= width {
            title.push_span(more);
        }
        title
    }

    /// The first line to show, so that those in focus are visible.
    fn first(&self, room: usize) -> usize {
        let needed = self.focus.end.saturating_sub(room);
        needed
            .min(self.focus.start)
            .min(self.lines.len().saturating_sub(room))
    }
}

fn pane_area(area: Rect) -> Rect {
    let (_, below) = split_top(area, u16::from(area.height >= CRAMPED));
    split_bottom(below, u16::from(area.height >= CRAMPED)).0
}

fn split_top(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    let above = Rect { height, ..area };
    let below = Rect {
        y: area.y + height,
        height: area.height - height,
        ..area
    };
    (above, below)
}

fn split_bottom(area: Rect, height: u16) -> (Rect, Rect) {
    split_top(area, area.height.saturating_sub(height))
}

fn rows(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn everybody_gets_the_least_before_anybody_gets_more() {
        assert_eq!(share(12, &[(2, 9), (3, 9), (4, 9)]), [3, 4, 5]);
        assert_eq!(share(30, &[(2, 9), (3, 3), (4, 5)]), [9, 3, 5]);
    }

    #[test]
    fn with_too_little_room_the_last_gets_it() {
        assert_eq!(share(1, &[(2, 9), (3, 9), (4, 9)]), [0, 0, 1]);
        assert_eq!(share(0, &[(2, 9), (3, 9), (4, 9)]), [0, 0, 0]);
        assert_eq!(share(4, &[(2, 9), (3, 9), (4, 9)]), [1, 1, 2]);
    }
}
