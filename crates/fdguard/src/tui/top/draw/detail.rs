//! The pane below the list: what one process has open.

use fdguard_core::snapshot::{Snapshot, Tier};
use fdguard_core::wall::Wall;
use fdguard_core::{Gap, Summary, command_line};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::report::host::{cell, mark, severity};
use crate::report::wrap::wrap;
use crate::terminal::{sanitize, sanitize_str};
use crate::tui::theme::Theme;
use crate::tui::top::state::{Holdings, TopState};
use crate::tui::widget;

/// Columns for a class and its count.
const CLASS: usize = 26;

/// Draws the pane, if it is open.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, app: &TopState, theme: &Theme) {
    let Some(pane) = app.pane.as_ref().filter(|_| !area.is_empty()) else {
        return;
    };
    let lines = lines(app, widget::pane_width(area), theme);
    widget::draw_pane(buffer, area, title(app), lines, pane.scroll);
}

/// Lines of text in the pane.
pub(super) fn length(app: &TopState, area: Rect) -> usize {
    lines(app, widget::pane_width(area), &Theme::new(false)).len()
}

fn title(app: &TopState) -> String {
    let Some(pane) = &app.pane else {
        return String::new();
    };
    let (command, tier) = match &pane.result {
        Some(Ok(holdings)) => {
            let command = command_line(&holdings.snapshot);
            let tier = match holdings.snapshot.tier {
                Tier::Radar => "radar",
                Tier::Full => "full",
                Tier::Kernel => "kernel",
            };
            (command, format!(" · {tier}"))
        }
        _ => (
            app.current().map_or_else(String::new, cell::command),
            String::new(),
        ),
    };
    let room = usize::from(app.size.0).saturating_sub(24);
    format!(" {} {}{tier} ", pane.pid, cell::cut(&command, room))
}

fn command_line(snapshot: &Snapshot) -> String {
    let process = &snapshot.process;
    if process.cmdline.is_empty() {
        return sanitize(&process.comm);
    }
    let words: Vec<String> = process.cmdline.iter().map(sanitize).collect();
    words.join(" ")
}

fn lines(app: &TopState, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    match app.pane.as_ref().and_then(|pane| pane.result.as_ref()) {
        None => vec![Line::styled("reading…", theme.quiet())],
        Some(Err(why)) => styled(
            &format!("could not read the process: {why}"),
            width,
            |line| Line::styled(line, theme.gap()),
        ),
        Some(Ok(holdings)) => content(holdings, width, theme),
    }
}

fn content(holdings: &Holdings, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let Holdings { snapshot, summary } = holdings;
    let mut lines = styled(&totals(snapshot, summary), width, Line::from);
    for hit in &summary.lints {
        let level = Some(hit.severity);
        let text = format!("{} {}: {}", mark(level), hit.rule, hit.message);
        let style = theme.severity(level);
        lines.extend(styled(text.trim_start(), width, |line| {
            Line::styled(line, style)
        }));
        lines.extend(styled(&format!("  fix: {}", hit.fix), width, Line::from));
    }
    for pattern in &summary.patterns {
        lines.extend(styled(pattern, width, Line::from));
    }
    lines.extend(walls(&summary.walls, width, theme));
    lines.extend(holdings_table(summary, width, theme));
    for Gap { what, why, remedy } in &snapshot.gaps {
        let text = format!("gap: {what}: {why}; {remedy}");
        lines.extend(styled(&text, width, |line| Line::styled(line, theme.gap())));
    }
    lines.extend(styled(&next_step(snapshot), width, Line::from));
    lines
}

/// Commands that show more about this process.
fn next_step(snapshot: &Snapshot) -> String {
    let process = &snapshot.process;
    let line = command_line::trace_command(process)
        .map_or_else(String::new, |command| format!("; find the line: {command}"));
    format!(
        "next: check for a leak: fdguard doctor {}{line}",
        process.pid
    )
}

fn totals(snapshot: &Snapshot, summary: &Summary) -> String {
    let numbers = match (summary.lowest, summary.highest) {
        (Some(lowest), Some(highest)) => format!(", fds {lowest}–{highest}"),
        _ => String::new(),
    };
    let crossed = match summary.crossed_1024 {
        Some(true) => ", fd 1024 exceeded",
        _ => "",
    };
    let family = match (snapshot.process.children, snapshot.process.zombies) {
        (Some(children), Some(0)) => format!(", children {children}"),
        (Some(children), zombies) => {
            format!(", children {children}, zombies {}", cell::exact(zombies))
        }
        _ => String::new(),
    };
    format!(
        "count {} of {} ({} %){numbers}, table {}{crossed}{family}",
        cell::exact(snapshot.count),
        cell::exact(snapshot.limits.soft),
        cell::percent(summary.percent_of_soft),
        cell::exact(snapshot.table_size),
    )
}

/// The limits with known headroom, each with its mark, on as many lines as they need.
fn walls(walls: &[Wall], width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(Span::styled("headroom:", theme.title()))];
    for wall in walls.iter().filter(|wall| wall.left.is_some()) {
        let level = severity(wall.percent());
        let words = [mark(level), &wall.name, &cell::compact(wall.left)].join(" ");
        let text = Span::styled(format!(" {},", words.trim_start()), theme.severity(level));
        match lines.last_mut() {
            Some(line) if line.width() + text.width() <= width => line.push_span(text),
            _ => lines.push(Line::from(vec![Span::raw(" "), text])),
        }
    }
    if let Some(last) = lines.last_mut().and_then(|line| line.spans.last_mut()) {
        last.content = last.content.trim_end_matches(',').to_owned().into();
    }
    lines
}

/// Classes on the left, targets on the right; stacked if the screen is too narrow.
fn holdings_table(summary: &Summary, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let classes = summary.classes.as_deref().unwrap_or_default();
    let targets = summary.targets.as_deref().unwrap_or_default();
    if summary.classes.is_none() {
        return vec![Line::styled(
            "the descriptors could not be listed",
            theme.gap(),
        )];
    }
    let classes: Vec<String> = classes
        .iter()
        .map(|class| {
            format!(
                "{:>6} {}",
                class.count,
                sanitize_str(&class.class.to_string())
            )
        })
        .collect();
    let beside = width >= 2 * CLASS;
    let target_width = if beside { width - CLASS } else { width };
    let targets: Vec<String> = targets
        .iter()
        .map(|target| {
            let text = target.target.to_lossy();
            let class = target.class.to_string();
            // Anonymous inodes are named after their class; show that once.
            let named = if text == class {
                class
            } else {
                format!("{class}  {text}")
            };
            let counted = format!("{:>6} {}", target.count, sanitize_str(&named));
            cell::cut(&counted, target_width)
        })
        .collect();
    let (left, right) = (("classes", classes), ("targets", targets));
    if beside {
        side_by_side(left, right, theme)
    } else {
        [left, right]
            .into_iter()
            .flat_map(|(heading, rows)| {
                let heading = Line::styled(format!(" COUNT {heading}"), theme.heading());
                std::iter::once(heading).chain(rows.into_iter().map(Line::from))
            })
            .collect()
    }
}

type Section = (&'static str, Vec<String>);

fn side_by_side(left: Section, right: Section, theme: &Theme) -> Vec<Line<'static>> {
    let heading = |word: &str| Span::styled(format!(" COUNT {word}"), theme.heading());
    let blank = CLASS.saturating_sub(7 + left.0.len());
    let mut lines = vec![Line::from(vec![
        heading(left.0),
        Span::raw(" ".repeat(blank)),
        heading(right.0),
    ])];
    for row in 0..left.1.len().max(right.1.len()) {
        let class = left.1.get(row).map_or("", String::as_str);
        let target = right.1.get(row).map_or("", String::as_str);
        lines.push(Line::from(format!("{}{target}", cell::left(class, CLASS))));
    }
    lines
}

fn styled(
    sentence: &str,
    width: usize,
    style: impl Fn(String) -> Line<'static>,
) -> Vec<Line<'static>> {
    let lines = wrap(&sanitize_str(sentence), width);
    lines.into_iter().map(style).collect()
}
