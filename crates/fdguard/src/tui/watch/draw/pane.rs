//! The pane with details: a finding in full, or every gap.

use fdguard_core::finding::{Finding, WallEta};
use fdguard_core::units::short_rate;
use fdguard_core::watch::Watch;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::Canvas;
use super::findings::severity_word;
use crate::report::document::steps;
use crate::report::table::class_name;
use crate::report::wrap::wrap;
use crate::terminal::{sanitize, sanitize_str};
use crate::tui::theme::Theme;
use crate::tui::watch::phrase;
use crate::tui::watch::state::{Pane, WatchViewState};
use crate::tui::widget;

pub(super) fn draw(canvas: Canvas<'_>, buffer: &mut Buffer, area: Rect, pane: Pane) {
    let Canvas { state, watch, .. } = canvas;
    let width = widget::pane_width(area);
    let lines = lines(Canvas { width, ..canvas }, pane);
    widget::draw_pane(buffer, area, title(pane, state, watch), lines, state.scroll);
}

/// The number of lines in the open pane, and how many of them fit on a screen of this size.
pub(in crate::tui::watch) fn extent(
    state: &WatchViewState,
    watch: &Watch,
    (width, height): (u16, u16),
) -> (usize, usize) {
    let area = super::pane_area(Rect::new(0, 0, width, height));
    let theme = Theme::new(false);
    let canvas = Canvas {
        state,
        watch,
        theme: &theme,
        width: widget::pane_width(area),
    };
    let lines = state.pane.map_or_else(Vec::new, |pane| lines(canvas, pane));
    (lines.len(), widget::pane_room(area))
}

fn title(pane: Pane, state: &WatchViewState, watch: &Watch) -> String {
    match (pane, state.finding(watch)) {
        (Pane::Gaps, _) => " gaps ".to_owned(),
        (Pane::Finding, None) => String::new(),
        (Pane::Finding, Some(finding)) => format!(
            " {} {} · {} of {} ",
            severity_word(finding),
            finding.rule,
            state.cursor() + 1,
            state.findings(watch).len()
        ),
    }
}

fn lines(canvas: Canvas<'_>, pane: Pane) -> Vec<Line<'static>> {
    let Canvas {
        state,
        watch,
        theme,
        width,
    } = canvas;
    match pane {
        Pane::Finding => state
            .finding(watch)
            .map_or_else(Vec::new, |finding| in_full(finding, width, theme)),
        Pane::Gaps => watch
            .gaps()
            .iter()
            .flat_map(|gap| {
                let text = format!("{}: {}; {}", gap.what, gap.why, gap.remedy);
                wrap(&sanitize_str(&text), width)
            })
            .map(Line::from)
            .collect(),
    }
}

/// A limit that is reached after this many seconds does not matter.
const LIFETIME: f64 = 100.0 * 365.0 * 86_400.0;

/// Every field that is not empty.
fn in_full(finding: &Finding, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let grown = finding.grown.map(|grown| format!("{grown:+} not closed"));
    let count = finding.count.map(|count| count.to_string());
    let rate = finding.rate_per_min.map(|rate| short_rate(rate / 60.0));
    let count = [count, grown, rate];
    let count: Vec<String> = count.into_iter().flatten().collect();
    let ahead = finding.walls.iter();
    let ahead = ahead.filter(|wall| wall.eta_seconds < LIFETIME);
    let walls: Vec<String> = ahead.map(wall).collect();
    let shape = finding.shape.map(|shape| shape.phrase().to_owned());
    let cleared = finding
        .cleared
        .as_ref()
        .map(|note| format!("{}, {}", note.reason, note.date));
    let confidence = format!("{:.0} %", finding.confidence * 100.0);
    let fields = [
        (
            "process",
            format!("{} {}", sanitize(&finding.comm), finding.pid),
        ),
        (
            "class",
            finding.class.as_ref().map(class_name).unwrap_or_default(),
        ),
        (
            "target",
            finding.target.as_ref().map(sanitize).unwrap_or_default(),
        ),
        ("count", count.join(", ")),
        ("shape", shape.unwrap_or_default()),
        ("confidence", confidence),
        ("walls", walls.join(", ")),
        ("cleared", cleared.unwrap_or_default()),
        ("why", finding.why.clone()),
    ];
    fields
        .into_iter()
        .chain(steps(&finding.next_step).map(|(name, text)| (name, text.to_owned())))
        .filter(|(_, text)| !text.is_empty())
        .flat_map(|(name, text)| field(name, &text, width, theme))
        .collect()
}

/// Columns for the names of the fields.
const NAMES: usize = 11;

fn field(name: &'static str, text: &str, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let text = wrap(&sanitize_str(text), width.saturating_sub(NAMES));
    text.into_iter()
        .enumerate()
        .map(|(at, line)| {
            let name = if at == 0 { name } else { "" };
            Line::from(vec![
                Span::styled(format!("{name:NAMES$}"), theme.title()),
                Span::raw(line),
            ])
        })
        .collect()
}

fn wall(wall: &WallEta) -> String {
    let when = phrase::countdown(
        wall.eta_seconds,
        Some(wall.soonest_seconds),
        wall.latest_seconds,
    );
    format!("{} {when}", wall.name)
}
