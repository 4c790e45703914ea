//! The help overlay.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Widget as _};

use super::Theme;
use crate::report::host::cell;
use crate::report::wrap::wrap;
use crate::terminal::sanitize_str;
use crate::tui::app::App;
use crate::tui::keys;

/// The meaning of the columns.
const WORDS: &[(&str, &str)] = &[
    ("!  !!", "above 70 %, at least 90 % of the nearest limit"),
    ("PEAK", "range of the highest fd ever used"),
    ("GROWN", "change since this view started"),
    ("HEADROOM", "descriptors left to the soft limit"),
    ("ETA", "time to that limit at the current rate"),
    ("?  -", "unknown; not growing"),
];

/// Draws the keys, the terms, and every gap in full.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App, theme: &Theme) {
    let pair = |(key, text): &(&'static str, &'static str)| {
        Line::from(vec![
            Span::styled(cell::left(key, 11), theme.key()),
            Span::raw(*text),
        ])
    };
    let width = frame.area().width.min(66);
    let mut lines: Vec<Line<'_>> = keys::HELP.iter().map(pair).collect();
    lines.push(Line::default());
    lines.extend(WORDS.iter().map(pair));
    for gap in &app.view.gaps {
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
