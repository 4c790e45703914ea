//! Draws the sites. Reads them and the state, changes neither.

use fdguard_core::units::duration;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::state::TraceViewState;
use super::{SiteRow, TraceHeadline};
use crate::report::host::cell;
use crate::report::table::counted;
use crate::tui::theme::Theme;
use crate::tui::widget::{self, key_line};

const LIVE: usize = 6;
const RATE: usize = 8;
const CLASS: usize = 16;
const LINE_AT_LEAST: usize = 12;

/// The width of each column; 0 without room.
#[derive(Clone, Copy, Debug)]
struct Widths {
    opened: usize,
    oldest: usize,
    class: usize,
    process: usize,
    line: usize,
}

impl Widths {
    fn of(width: usize, several: bool) -> Self {
        let (opened, oldest, class) = match width {
            ..60 => (0, 0, 11),
            60..76 => (0, 9, CLASS),
            _ => (8, 9, CLASS),
        };
        let process = if several && width >= 100 { 18 } else { 0 };
        let used = 1 + LIVE + RATE + 2 * opened + oldest + 1 + class + process;
        Self {
            opened,
            oldest,
            class,
            process,
            line: width.saturating_sub(used).max(LINE_AT_LEAST),
        }
    }
}

/// Draws everything.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    state: &TraceViewState,
    headline: &TraceHeadline,
    rows: &[SiteRow],
    theme: &Theme,
) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    let width = usize::from(area.width);
    let widths = Widths::of(width, headline.processes > 1);
    let mut lines = area.rows();
    let mut put = |line: Line<'static>, buffer: &mut Buffer| {
        if let Some(row) = lines.next() {
            line.render(row, buffer);
        }
    };
    put(title(headline, rows, width, theme), buffer);
    put(
        Line::styled(cell::left(&heading(widths), width), theme.heading()),
        buffer,
    );
    if rows.is_empty() {
        let text = " no traced descriptor is open";
        put(Line::styled(text, theme.quiet()), buffer);
    }
    let room = list_height(area.height);
    // The cursor is always on the screen.
    let first = (state.cursor() + 1).saturating_sub(room.max(1));
    for (at, row) in rows.iter().enumerate().skip(first).take(room) {
        put(
            site(row, at == state.cursor(), widths, width, theme),
            buffer,
        );
    }
    if let Some(bottom) = area.rows().next_back().filter(|_| area.height > 3) {
        footer(state, rows, theme, width).render(bottom, buffer);
    }
    if let Some(row) = rows.get(state.cursor()).filter(|_| state.is_open) {
        let area = pane_area(area);
        let lines = stack_lines(row, widget::pane_width(area), theme);
        let title = format!(" {} ", row.line);
        widget::draw_pane(buffer, area, title, lines, state.scroll);
    }
}

/// Rows for sites on a screen of this height.
pub(super) fn list_height(height: u16) -> usize {
    usize::from(height).saturating_sub(3)
}

fn pane_area(area: Rect) -> Rect {
    Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(2),
        ..area
    }
}

/// The number of lines in the open pane, and how many of them fit on the screen.
pub(super) fn pane_extent(state: &TraceViewState, rows: &[SiteRow]) -> (usize, usize) {
    let (width, height) = state.size;
    let area = pane_area(Rect::new(0, 0, width, height));
    let theme = Theme::new(false);
    let lines = rows
        .get(state.cursor())
        .map(|row| stack_lines(row, widget::pane_width(area), &theme));
    (
        lines.map_or(0, |lines| lines.len()),
        widget::pane_room(area),
    )
}

/// `server (pid 123): 119 descriptors, 12 sites, 2 growing`, as much of it as fits.
fn title(headline: &TraceHeadline, rows: &[SiteRow], width: usize, theme: &Theme) -> Line<'static> {
    let growing = rows.iter().filter(|row| row.is_growing).count();
    let mut parts = vec![format!("{growing} growing")];
    let sites = counted(rows.len() as u64, "site");
    parts.push(sites);
    parts.push(match headline.descriptors {
        Some(count) => counted(count, "descriptor"),
        None => "descriptors unknown".to_owned(),
    });
    if headline.processes > 1 {
        parts.push(counted(headline.processes as u64, "process"));
    }
    let name = format!("{} (pid {})", headline.name, headline.pid);
    let mut text = String::new();
    for part in parts {
        if name.len() + text.len() + part.len() + 2 <= width {
            text.push_str(if text.is_empty() { ": " } else { ", " });
            text.push_str(&part);
        }
    }
    Line::from(vec![Span::styled(name, theme.title()), Span::raw(text)])
}

fn heading(widths: Widths) -> String {
    format!(
        " {}{}{}{}{} {}{}{}",
        cell::right("LIVE", LIVE),
        cell::right("+/S", RATE),
        cell::right("OPENED", widths.opened),
        cell::right("CLOSED", widths.opened),
        cell::right("OLDEST", widths.oldest),
        cell::left("CLASS", widths.class),
        cell::left(
            if widths.process > 0 { "PROCESS" } else { "" },
            widths.process
        ),
        cell::left("LINE", widths.line),
    )
}

fn site(
    row: &SiteRow,
    is_selected: bool,
    widths: Widths,
    width: usize,
    theme: &Theme,
) -> Line<'static> {
    let process = format!("{} {}", row.pid, row.comm);
    let text = format!(
        "{}{}{}{}{}{} {}{}{}",
        if row.is_growing { "↑" } else { " " },
        cell::right(&row.live.to_string(), LIVE),
        cell::right(&rate(row.rate), RATE),
        cell::right(&row.opened.to_string(), widths.opened),
        cell::right(&row.closed.to_string(), widths.opened),
        cell::right(&duration(row.oldest), widths.oldest),
        cell::left(&cut(&row.class, widths.class), widths.class),
        cell::left(&cut(&process, widths.process), widths.process),
        cell::left(&row.line, widths.line),
    );
    let text = cell::left(&text, width);
    let style = match (is_selected, row.is_growing) {
        (true, _) => theme.selected(),
        (false, true) => theme.severity(Some(fdguard_core::lint::Severity::Warning)),
        (false, false) => ratatui::style::Style::new(),
    };
    Line::styled(text, style)
}

/// Followed by a blank.
fn cut(text: &str, width: usize) -> String {
    cell::left(text, width.saturating_sub(1))
}

/// Empty if unknown, not 0.
fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "?".to_owned(),
        Some(rate) if rate.abs() < 0.05 => "0".to_owned(),
        Some(rate) => format!("{rate:+.1}"),
    }
}

fn footer(state: &TraceViewState, rows: &[SiteRow], theme: &Theme, width: usize) -> Line<'static> {
    let (leave, enter) = if state.is_open {
        ("back", "close")
    } else {
        ("quit", "stack")
    };
    let mut keys = vec![("q", leave)];
    if !rows.is_empty() {
        keys.extend([("j/k", "select"), ("enter", enter)]);
    }
    keys.push(("?", "help"));
    key_line(keys, width, theme)
}

/// All about one site.
fn stack_lines(row: &SiteRow, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let facts = [
        format!("{} live, {}/s", row.live, rate(row.rate)),
        format!(
            "opened {}, closed {}, oldest {}",
            row.opened,
            row.closed,
            duration(row.oldest)
        ),
        format!("{} {}", row.class, row.target.as_deref().unwrap_or("")),
        format!("in {} (pid {})", row.comm, row.pid),
        String::new(),
    ];
    let facts = facts.iter().map(|fact| Line::raw(cell::left(fact, width)));
    let frames = row.stack.iter();
    let frames = frames.map(|frame| Line::styled(cell::left(frame, width), theme.quiet()));
    facts.chain(frames).collect()
}
