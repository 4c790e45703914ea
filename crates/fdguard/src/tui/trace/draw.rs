//! Draws the sites. Reads them and the state, changes neither.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Widget as _};

use super::state::TraceViewState;
use super::{SiteRow, TraceHeadline};
use crate::report::diagnosis::duration;
use crate::report::host::cell;
use crate::report::table::counted;
use crate::tui::theme::Theme;

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
pub fn draw(
    frame: &mut Frame<'_>,
    state: &TraceViewState,
    headline: &TraceHeadline,
    rows: &[SiteRow],
) {
    let theme = Theme::new(state.colour);
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
    put(title(headline, rows, width, &theme), buffer);
    put(
        Line::styled(cell::left(&heading(widths), width), theme.heading()),
        buffer,
    );
    if rows.is_empty() {
        let text = " no traced descriptor is open";
        put(Line::styled(text, theme.quiet()), buffer);
    }
    let room = usize::from(area.height).saturating_sub(3);
    // The cursor is always on the screen.
    let first = (state.cursor + 1).saturating_sub(room.max(1));
    for (at, row) in rows.iter().enumerate().skip(first).take(room) {
        put(site(row, at == state.cursor, widths, width, &theme), buffer);
    }
    if let Some(bottom) = area.rows().next_back().filter(|_| area.height > 3) {
        footer(state, rows, &theme, width).render(bottom, buffer);
    }
    if let Some(row) = rows.get(state.cursor).filter(|_| state.is_open) {
        pane(buffer, area, state, row, &theme);
    }
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
    let keys = [("q", leave), ("j/k", "select"), ("enter", enter)];
    let mut line = Line::default();
    for (key, word) in keys.into_iter().take(if rows.is_empty() { 1 } else { 3 }) {
        if line.width() + key.len() + 1 + word.len() > width {
            break;
        }
        line.push_span(Span::styled(key, theme.key()));
        line.push_span(Span::raw(format!(" {word}  ")));
    }
    line
}

/// All about one site.
fn pane(buffer: &mut Buffer, area: Rect, state: &TraceViewState, row: &SiteRow, theme: &Theme) {
    let area = Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(2),
        ..area
    };
    let width = usize::from(area.width.saturating_sub(2));
    let mut lines = vec![
        Line::raw(cell::left(
            &format!("{} live, {}/s", row.live, rate(row.rate)),
            width,
        )),
        Line::raw(cell::left(
            &format!(
                "opened {}, closed {}, oldest {}",
                row.opened,
                row.closed,
                duration(row.oldest)
            ),
            width,
        )),
        Line::raw(cell::left(
            &format!("{} {}", row.class, row.target.as_deref().unwrap_or("")),
            width,
        )),
        Line::raw(cell::left(
            &format!("in {} (pid {})", row.comm, row.pid),
            width,
        )),
        Line::default(),
    ];
    let frames = row.stack.iter();
    lines.extend(frames.map(|frame| Line::styled(cell::left(frame, width), theme.quiet())));
    let room = usize::from(area.height.saturating_sub(2));
    let first = state.scroll.min(lines.len().saturating_sub(room));
    let below = lines.len().saturating_sub(first + room);
    let title = format!(" {} ", row.line);
    let mut block = Block::bordered().title(title);
    if below > 0 {
        block = block.title_bottom(format!(" {below} more: PgDn "));
    }
    let shown: Vec<Line<'_>> = lines.into_iter().skip(first).take(room).collect();
    Clear.render(area, buffer);
    Paragraph::new(shown).block(block).render(area, buffer);
}
