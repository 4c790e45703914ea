//! Parts of the screen that every view has: the line of keys, a pane, the help.

use fdguard_core::Gap;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Widget as _};

use super::theme::Theme;
use crate::report::host::cell;
use crate::report::wrap::wrap;
use crate::terminal::sanitize_str;

/// The keys of the line at the bottom, as many as fit.
pub(super) fn key_line<'a>(
    keys: impl IntoIterator<Item = (&'a str, &'a str)>,
    width: usize,
    theme: &Theme,
) -> Line<'a> {
    let mut line = Line::default();
    for (key, word) in keys {
        if line.width() + key.len() + 1 + word.len() > width {
            break;
        }
        line.push_span(Span::styled(key, theme.key()));
        line.push_span(Span::raw(format!(" {word}  ")));
    }
    line
}

/// How many lines of text a pane shows.
pub(super) fn pane_room(area: Rect) -> usize {
    usize::from(area.height.saturating_sub(2))
}

/// How many columns of text it has.
pub(super) fn pane_width(area: Rect) -> usize {
    usize::from(area.width.saturating_sub(2))
}

/// Draws a pane with its lines from `scroll` on.
pub(super) fn draw_pane(
    buffer: &mut Buffer,
    area: Rect,
    title: String,
    lines: Vec<Line<'_>>,
    scroll: usize,
) {
    let room = pane_room(area);
    // If the pane became shorter while scrolled, show its end.
    let first = scroll.min(lines.len().saturating_sub(room));
    let below = lines.len().saturating_sub(first + room);
    let mut block = Block::bordered().title(title);
    if below > 0 {
        block = block.title_bottom(format!(" {below} more: PgDn "));
    }
    let shown: Vec<Line<'_>> = lines.into_iter().skip(first).take(room).collect();
    Clear.render(area, buffer);
    Paragraph::new(shown).block(block).render(area, buffer);
}

/// Keys or words with their meaning.
pub(super) type HelpTable = &'static [(&'static str, &'static str)];

/// Draws the help over everything: the tables, then what could not be seen.
pub(super) fn draw_help(frame: &mut Frame<'_>, tables: &[HelpTable], gaps: &[Gap], theme: &Theme) {
    let width = frame.area().width.min(66);
    let mut lines = Vec::new();
    for table in tables.iter().filter(|table| !table.is_empty()) {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(table.iter().map(|(key, text)| {
            let key = Span::styled(cell::left(key, 11), theme.key());
            Line::from(vec![key, Span::raw(*text)])
        }));
    }
    for gap in gaps {
        let text = format!("gap: {}: {}; {}", gap.what, gap.why, gap.remedy);
        let text = wrap(&sanitize_str(&text), usize::from(width.saturating_sub(2)));
        lines.extend(text.into_iter().map(|line| Line::styled(line, theme.gap())));
    }
    let block = Block::bordered().title(" help: press any key to close ");
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let area = centred(frame.area(), width, height);
    Clear.render(area, frame.buffer_mut());
    Paragraph::new(lines)
        .block(block)
        .render(area, frame.buffer_mut());
}

fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect::new(
        area.x + (area.width - width) / 2,
        area.y + (area.height - height) / 2,
        width,
        height,
    )
}
