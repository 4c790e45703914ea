//! Draws the state. Reads it, never changes it, and processes only what is on the screen.

use ratatui::Frame;
use ratatui::layout::Rect;

use super::state::TopState;
use crate::tui::theme::Theme;
use crate::tui::widget;

mod column;
mod detail;
mod header;
mod processes;

/// The layout of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Areas {
    header: Rect,
    heading: Rect,
    list: Rect,
    pane: Rect,
    footer: Rect,
}

/// Below this many rows only the list and one line above it are useful.
const CRAMPED: u16 = 8;

/// From this many rows on, the list can spare a line for the first gap.
const ROOMY: u16 = 12;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, app: &TopState, theme: &Theme) {
    let areas = areas(app, frame.area());
    let buffer = frame.buffer_mut();
    header::draw(buffer, areas.header, app, theme);
    processes::draw(buffer, areas.heading, areas.list, app, theme);
    detail::draw(buffer, areas.pane, app, theme);
    header::draw_footer(buffer, areas.footer, app, theme);
}

/// How many rows of the list fit on a screen of the known size.
pub(super) fn list_height(app: &TopState) -> usize {
    let (width, height) = app.size;
    usize::from(areas(app, Rect::new(0, 0, width, height)).list.height)
}

/// The number of text lines in the pane, and how many of them fit on a screen of the known size.
pub(super) fn pane_extent(app: &TopState) -> (usize, usize) {
    let (width, height) = app.size;
    let pane = areas(app, Rect::new(0, 0, width, height)).pane;
    (detail::length(app, pane), widget::pane_room(pane))
}

fn areas(app: &TopState, area: Rect) -> Areas {
    let cramped = area.height < CRAMPED;
    let gaps = u16::from(!app.view.gaps.is_empty() && area.height >= ROOMY);
    let (header, footer) = if cramped { (1, 0) } else { (2 + gaps, 1) };
    let body = area.height.saturating_sub(header + footer + 1);
    // The pane leaves the list enough rows to scroll.
    let pane = match body {
        _ if app.pane.is_none() => 0,
        0..12 => body.saturating_sub(3),
        _ => body * 3 / 5,
    };
    let mut y = area.y;
    let mut take = |height: u16| {
        let rect = Rect::new(area.x, y, area.width, height).intersection(area);
        y = y.saturating_add(height);
        rect
    };
    Areas {
        header: take(header),
        heading: take(1),
        list: take(body - pane),
        pane: take(pane),
        footer: take(footer),
    }
}
