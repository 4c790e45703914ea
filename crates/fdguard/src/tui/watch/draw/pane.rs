//! The pane with details: a finding in full, or every gap.

use fdguard_core::finding::{Finding, WallEta};
use fdguard_core::watch::Watch;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Widget as _};

use super::findings::severity_word;
use crate::report::table::class_name;
use crate::report::wrap::wrap;
use crate::terminal::{sanitize, sanitize_str};
use crate::tui::theme::Theme;
use crate::tui::watch::phrase;
use crate::tui::watch::state::{Pane, WatchViewState};

pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    pane: Pane,
    state: &WatchViewState,
    watch: &Watch,
    theme: &Theme,
) {
    let lines = lines(pane, state, watch, text_width(area.width), theme);
    let room = usize::from(area.height.saturating_sub(2));
    // If the pane became shorter while scrolled, show its end.
    let first = state.scroll.min(lines.len().saturating_sub(room));
    let below = lines.len().saturating_sub(first + room);
    let mut block = Block::bordered().title(title(pane, state, watch));
    if below > 0 {
        block = block.title_bottom(format!(" {below} more: PgDn "));
    }
    let shown: Vec<Line<'_>> = lines.into_iter().skip(first).take(room).collect();
    Clear.render(area, buffer);
    Paragraph::new(shown).block(block).render(area, buffer);
}

/// The number of lines in the open pane, and how many of them fit on a screen of this size.
pub(in crate::tui::watch) fn extent(
    state: &WatchViewState,
    watch: &Watch,
    (width, height): (u16, u16),
) -> (usize, usize) {
    let area = super::pane_area(Rect::new(0, 0, width, height));
    let theme = Theme::new(false);
    let lines = state.pane.map_or_else(Vec::new, |pane| {
        lines(pane, state, watch, text_width(area.width), &theme)
    });
    (lines.len(), usize::from(area.height.saturating_sub(2)))
}

fn text_width(width: u16) -> usize {
    usize::from(width.saturating_sub(2))
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

fn lines(
    pane: Pane,
    state: &WatchViewState,
    watch: &Watch,
    width: usize,
    theme: &Theme,
) -> Vec<Line<'static>> {
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
    let count = [count, grown, finding.rate_per_min.map(phrase::rate)];
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
        .chain(next_steps(&finding.next_step))
        .filter(|(_, text)| !text.is_empty())
        .flat_map(|(name, text)| field(name, &text, width, theme))
        .collect()
}

/// The parts of the advice: possible cause, how to verify, what to change.
fn next_steps(text: &str) -> Vec<(&'static str, String)> {
    let (text, line) = text.split_once(" Line: ").unwrap_or((text, ""));
    let (text, fix) = text.split_once(" Fix: ").unwrap_or((text, ""));
    let (text, confirm) = text.split_once(" Confirm: ").unwrap_or((text, ""));
    [
        ("next", text),
        ("confirm", confirm),
        ("fix", fix),
        ("line", line),
    ]
    .map(|(name, part)| (name, part.to_owned()))
    .to_vec()
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
