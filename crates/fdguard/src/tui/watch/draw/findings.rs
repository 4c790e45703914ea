//! The findings, the most severe first; the selected one includes what to do.

use fdguard_core::finding::Finding;
use ratatui::text::{Line, Span};

use super::{Canvas, Section};
use crate::report::host::cell;
use crate::report::style;
use crate::report::wrap::wrap;
use crate::terminal::sanitize_str;
use crate::tui::theme::Theme;

/// A finding with fewer lines is of little use.
const LEAST: usize = 6;

/// How many lines of each part are shown; the pane has the rest.
#[derive(Clone, Copy)]
struct Most {
    why: usize,
    next: usize,
}

impl Most {
    /// Shows everything if there is room or only one finding; otherwise no finding may hide the
    /// others.
    fn of(is_tall: bool, findings: usize, is_selected: bool) -> Self {
        let (why, next) = match is_selected {
            _ if is_tall || findings == 1 => (usize::MAX, usize::MAX),
            true => (3, 2),
            false => (1, 1),
        };
        Self { why, next }
    }
}

pub(super) fn section(canvas: Canvas<'_>, is_tall: bool) -> Section {
    let (state, width, theme) = (canvas.state, canvas.width, canvas.theme);
    let findings = state.findings(canvas.watch);
    let mut lines = Vec::new();
    let mut focus = 0..0;
    for (at, finding) in findings.iter().enumerate() {
        let start = lines.len();
        let is_selected = at == state.cursor();
        let most = Most::of(is_tall, findings.len(), is_selected);
        lines.extend(self::lines(finding, is_selected, most, width, theme));
        if is_selected {
            focus = start..lines.len();
        }
    }
    if lines.is_empty() {
        lines.push(Line::styled(" none so far", theme.quiet()));
    }
    let title = format!("FINDINGS {}", findings.len());
    Section {
        heading: Line::from(Span::styled(title, theme.heading())),
        least: focus.len().clamp(1, LEAST),
        lines,
        focus,
    }
}

fn lines(
    finding: &Finding,
    is_selected: bool,
    most: Most,
    width: usize,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let room = width.saturating_sub(2);
    let text = format!(
        "{} {}: {}",
        severity_word(finding),
        finding.rule,
        finding.why
    );
    let (style, after) = match &finding.cleared {
        Some(note) => (
            theme.quiet(),
            Some(format!("cleared on {}: {}", note.date, note.reason)),
        ),
        None => (
            theme.severity(Some(finding.severity)),
            Some(format!("next: {}", finding.next_step))
                .filter(|_| is_selected && !finding.next_step.is_empty()),
        ),
    };
    let mark = if is_selected { "▸" } else { " " };
    let why = shortened(&text, room, most.why).into_iter().enumerate();
    let why = why.map(|(at, line)| {
        let mark = if at == 0 { mark } else { " " };
        Line::from(vec![Span::raw(mark), Span::styled(line, style)])
    });
    let after = after.map_or_else(Vec::new, |text| {
        shortened(&text, room.saturating_sub(2), most.next)
    });
    let after_style = match finding.cleared {
        Some(_) => theme.quiet(),
        None => theme.severity(None),
    };
    let after = after
        .into_iter()
        .map(|line| Line::styled(format!("   {line}"), after_style));
    why.chain(after).collect()
}

/// A sentence in at most `most` lines, with a mark if it is cut.
fn shortened(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = wrap(&sanitize_str(text), width);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = cell::cut(&format!("{last} …"), width);
        }
    }
    lines
}

/// The severity, or a word for a finding that does not count.
pub(super) fn severity_word(finding: &Finding) -> &'static str {
    match &finding.cleared {
        Some(_) => "cleared",
        None => style::severity(finding.severity).1,
    }
}
