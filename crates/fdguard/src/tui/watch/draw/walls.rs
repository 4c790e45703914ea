//! The limits: how much of each is used, and when it is reached.

use fdguard_core::forecast::Forecast;
use fdguard_core::lint::Severity;
use fdguard_core::watch::WatchedProcess;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::header::bar;
use super::{Canvas, Section};
use crate::report::host::{cell, larger_first};
use crate::tui::watch::phrase;
use crate::tui::watch::state::JudgedProcess;

/// The kernel uses a ceiling this large to mean that there is none.
const NO_CEILING: u64 = i64::MAX as u64;

/// A limit nearer than this, in seconds, is an emergency.
const SOON: f64 = 3600.0;

pub(super) fn section(
    canvas: Canvas<'_>,
    subject: &WatchedProcess,
    judged: Option<&JudgedProcess>,
) -> Section {
    let all = judged.map_or(&[][..], |judged| &judged.opinion.walls);
    let mut walls: Vec<&Forecast> = all.iter().filter(|wall| wall.at < NO_CEILING).collect();
    walls.sort_by(|a, b| {
        let near = |wall: &Forecast| wall.eta_seconds.map(|eta| -eta);
        larger_first(near(a), near(b)).then_with(|| larger_first(a.percent, b.percent))
    });
    let near = walls.iter().filter(|wall| is_near(wall)).count();
    let names = walls
        .iter()
        .map(|wall| wall.name.len())
        .max()
        .unwrap_or(0)
        .min(canvas.width / 3);
    let lines = walls.iter().map(|wall| row(canvas, subject, wall, names));
    Section {
        heading: Line::from(Span::styled("LIMITS", canvas.theme.heading())),
        lines: lines.collect(),
        focus: 0..0,
        least: near.clamp(1, 3),
    }
}

fn is_near(wall: &Forecast) -> bool {
    wall.eta_seconds.is_some() || wall.left == Some(0)
}

fn row(
    canvas: Canvas<'_>,
    subject: &WatchedProcess,
    wall: &Forecast,
    names: usize,
) -> Line<'static> {
    let width = canvas.width;
    // A process that exited approaches no limit.
    let (style, when) = match subject.gone {
        Some(_) => (canvas.theme.quiet(), String::new()),
        None => (style(canvas, wall), when(wall)),
    };
    let columns = match width {
        ..60 => 0,
        60..110 => 10,
        _ => 30,
    };
    let mut line = Line::from(Span::raw(format!(" {}", cell::left(&wall.name, names))));
    if columns > 0 {
        let bar = match wall.percent {
            Some(percent) => bar(percent, columns),
            None => " ".repeat(columns),
        };
        line.push_span(Span::raw(format!(" {bar}")));
    }
    let percent = match wall.percent {
        Some(percent) => format!("{percent:.0} %"),
        None => cell::UNKNOWN.to_owned(),
    };
    line.push_span(Span::raw(format!(" {percent:>5}")));
    if width >= 100 {
        let used = format!(
            "{} of {}",
            cell::compact(wall.used),
            cell::compact(Some(wall.at))
        );
        line.push_span(Span::raw(format!("  {used:>16}")));
    }
    let room = width.saturating_sub(line.width() + 2);
    line.push_span(Span::raw(format!("  {}", cell::cut(&when, room))));
    line.style(style)
}

/// The countdown, with its condition.
fn when(wall: &Forecast) -> String {
    let condition = match &wall.only_if {
        Some(condition) => format!(" {condition}"),
        None => String::new(),
    };
    match wall.eta_seconds {
        _ if wall.left == Some(0) => format!("reached{condition}"),
        Some(eta) => {
            let countdown = phrase::countdown(eta, wall.soonest_seconds, wall.latest_seconds);
            format!("{countdown}{condition}")
        }
        None if wall.used.is_none() => "use unknown".to_owned(),
        None => "not approaching".to_owned(),
    }
}

/// Red for a limit that is near in time or number, dim for one that is not approached.
fn style(canvas: Canvas<'_>, wall: &Forecast) -> Style {
    let by_share = canvas.state.levels.judge(wall.percent, None);
    let by_time = wall.eta_seconds.map(|eta| match &wall.only_if {
        None if eta < SOON => Severity::Critical,
        _ => Severity::Warning,
    });
    match by_share.max(by_time) {
        None => canvas.theme.quiet(),
        level => canvas.theme.severity(level),
    }
}
