//! Open descriptors by class: count, rate and history.

use fdguard_core::judge::Verdict;
use fdguard_core::units::short_rate;
use fdguard_core::watch::WatchedProcess;
use ratatui::text::{Line, Span};

use super::{Canvas, Section};
use crate::report::diagnosis::word;
use crate::report::host::cell;
use crate::tui::theme::Theme;
use crate::tui::watch::class_row::ClassRow;
use crate::tui::watch::state::JudgedProcess;

/// The width of each column; 0 without room.
#[derive(Clone, Copy, Debug)]
struct Widths {
    verdict: usize,
    name: usize,
    opened: usize,
    history: usize,
}

const COUNT: usize = 7;
const RATE: usize = 9;

impl Widths {
    fn of(width: usize) -> Self {
        let (verdict, opened) = if width < 60 { (3, 0) } else { (8, 8) };
        let name = match width {
            ..60 => 15,
            60..110 => 16,
            _ => 24,
        };
        let used = 1 + verdict + name + COUNT + opened + RATE + 1;
        Self {
            verdict,
            name,
            opened,
            history: width.saturating_sub(used),
        }
    }
}

pub(super) fn section(
    canvas: Canvas<'_>,
    subject: &WatchedProcess,
    judged: Option<&JudgedProcess>,
) -> Section {
    let (width, theme) = (canvas.width, canvas.theme);
    let widths = Widths::of(width);
    let rows = judged.and_then(|judged| judged.classes.as_ref());
    let lines = match rows {
        Some(rows) => rows
            .iter()
            .flat_map(|row| lines(row, widths, width, theme))
            .collect(),
        None if subject.timeline.looks() == 0 => Vec::new(),
        None => [
            "the descriptors could not be listed;",
            "only their count is watched",
        ]
        .map(|line| Line::styled(format!(" {line}"), theme.gap()))
        .to_vec(),
    };
    let least = lines.len().min(3);
    Section {
        heading: heading(rows.is_some(), widths, theme),
        lines,
        focus: 0..0,
        least,
    }
}

fn heading(is_listed: bool, widths: Widths, theme: &Theme) -> Line<'static> {
    let mut text = cell::left("CLASSES", 1 + widths.verdict + widths.name);
    if is_listed {
        text.push_str(&cell::right("COUNT", COUNT));
        text.push_str(&cell::right("OPENED", widths.opened));
        text.push_str(&cell::right("RATE", RATE));
    }
    Line::from(Span::styled(text.trim_end().to_owned(), theme.heading()))
}

/// The row, and below it what is growing.
fn lines(row: &ClassRow, widths: Widths, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let style = match row.verdict {
        Some(verdict) => theme.verdict(verdict),
        None if row.is_cleared => theme.quiet(),
        None => theme.severity(None),
    };
    let verdict = match (row.verdict, widths.verdict) {
        (None, 8..) if row.is_cleared => "cleared",
        (None, _) => "",
        (Some(verdict), 8..) => word(verdict),
        (Some(Verdict::Leaking), _) => "!!",
        (Some(_), _) => "!",
    };
    let rate = row.rate.map(|rate| short_rate(rate / 60.0));
    let rate = rate.unwrap_or_else(|| cell::NONE.to_owned());
    let text = [
        " ".to_owned(),
        cell::left(verdict, widths.verdict),
        cell::left(&row.name, widths.name),
        cell::right(&cell::compact(Some(row.count.into())), COUNT),
        cell::right(&cell::compact(Some(row.opened)), widths.opened),
        cell::right(&rate, RATE),
        " ".to_owned(),
    ];
    let history = row.history.picture(widths.history, 1).concat();
    let first = Line::from(vec![
        Span::styled(text.concat(), style),
        Span::styled(history, style),
    ]);
    let indent = " ".repeat(1 + widths.verdict);
    let room = width.saturating_sub(indent.len());
    let targets = row.targets.iter().map(|target| {
        let target = crate::report::table::cut(target, room);
        Line::styled(format!("{indent}{target}"), theme.quiet())
    });
    std::iter::once(first).chain(targets).collect()
}
