//! A diagnosis for people: the verdict first, then why, how long, and what to do.

use std::io::Write;

use anstyle::Style;
use fdguard_core::Gap;
use fdguard_core::diagnosis::{Diagnosis, ProcessDiagnosis, WatchEnd};
use fdguard_core::finding::Finding;
use fdguard_core::forecast::Forecast;
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::units::{counted, duration};
use fdguard_core::workload::Workload;

use super::document;
use super::style::{self, ADDED, CRITICAL, DIM, HEADING, WARNING};
use super::text::paragraph;
use crate::terminal::{sanitize, sanitize_str};

/// The contract's word.
#[must_use]
pub fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Unknown => "unknown",
        Verdict::Stable => "stable",
        Verdict::Bounded => "bounded",
        Verdict::Growing => "growing",
        Verdict::Leaking => "leaking",
    }
}

fn style_of(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Unknown => DIM,
        Verdict::Stable | Verdict::Bounded => ADDED,
        Verdict::Growing => WARNING,
        Verdict::Leaking => CRITICAL,
    }
}

/// Below this width words are not broken: the terminal does that.
const NARROWEST: usize = 24;

/// Writes the whole report, lines no wider than `width`.
pub fn write(
    out: &mut dyn Write,
    diagnosis: &Diagnosis,
    width: Option<usize>,
) -> anyhow::Result<()> {
    let width = columns(width);
    for opinion in diagnosis.processes.iter().chain(&diagnosis.predecessors) {
        write_opinion(out, opinion, width)?;
    }
    if let Some(note) = ended(diagnosis.ended) {
        writeln!(out, "{DIM}{note}{DIM:#}")?;
    }
    write_gaps(out, &diagnosis.gaps, width)
}

/// Prints what could not be seen.
pub(crate) fn write_gaps(out: &mut dyn Write, gaps: &[Gap], width: usize) -> anyhow::Result<()> {
    for gap in gaps {
        let text = format!("not seen: {} ({}); {}", gap.what, gap.why, gap.remedy);
        paragraph(out, &sanitize_str(&text), Some(width), (0, 0), DIM)?;
    }
    Ok(())
}

/// Columns for sentences.
pub(crate) fn columns(width: Option<usize>) -> usize {
    width.unwrap_or(100).max(NARROWEST)
}

fn ended(ended: WatchEnd) -> Option<&'static str> {
    match ended {
        WatchEnd::TimeUp | WatchEnd::RecordingEnded => None,
        WatchEnd::ProcessEnded => {
            Some("The process exited during the watch. The verdict covers the time until then.")
        }
        WatchEnd::Interrupted => Some("Stopped early. The verdict covers the time until then."),
        WatchEnd::RecordingCut => {
            Some("The recording is incomplete. The verdict covers the part that exists.")
        }
    }
}

/// Writes the verdict and the findings of one process.
pub(crate) fn write_opinion(
    out: &mut dyn Write,
    opinion: &ProcessDiagnosis,
    width: usize,
) -> anyhow::Result<()> {
    let style = style_of(opinion.verdict);
    let (verdict, comm) = (word(opinion.verdict), sanitize(&opinion.comm));
    let numbers = format!(
        "{} in {}, {}",
        counts(opinion),
        duration(opinion.watched_seconds),
        counted(opinion.samples, "sample"),
    );
    let label = opinion.workload.as_ref().and_then(Workload::label);
    let label = label.map_or_else(String::new, |label| format!(", {}", sanitize_str(&label)));
    let head = format!("{verdict}  {comm} (pid {}{label}):", opinion.pid);
    let fits = head.chars().count() + 1 + numbers.chars().count() <= width;
    writeln!(
        out,
        "{style}{verdict}{style:#}  {HEADING}{comm}{HEADING:#} (pid {}{label}):{}{numbers}",
        opinion.pid,
        if fits { " " } else { "\n  " },
    )?;
    let mut told = "";
    for finding in &opinion.findings {
        write_finding(out, finding, width)?;
        if finding.cleared.is_none() && finding.severity > Severity::Info {
            write_next(out, &finding.next_step, told, width)?;
            told = &finding.next_step;
        }
    }
    let ahead = opinion
        .walls
        .iter()
        .filter(|wall| wall.eta_seconds.is_some());
    for wall in ahead {
        let text = sanitize_str(&wall_line(wall)).into_owned();
        paragraph(out, &text, Some(width), (2, 2), Style::new())?;
    }
    Ok(())
}

fn counts(opinion: &ProcessDiagnosis) -> String {
    match (opinion.baseline, opinion.last) {
        (Some(first), Some(last)) if first == last => counted(last, "descriptor"),
        (Some(first), Some(last)) => format!("{first} → {last} descriptors"),
        (None, Some(last)) => counted(last, "descriptor"),
        _ => "an unknown number of descriptors".to_owned(),
    }
}

fn write_finding(out: &mut dyn Write, finding: &Finding, width: usize) -> anyhow::Result<()> {
    let (style, name) = style::severity(finding.severity);
    let what = match (&finding.class, &finding.target) {
        (Some(class), Some(target)) => format!("{class}  {}", sanitize(target)),
        (Some(class), None) => class.to_string(),
        (None, _) => String::new(),
    };
    writeln!(out, "  {style}{name}{style:#} {}  {what}", finding.rule)?;
    let (width, indent) = (Some(width), (4, 4));
    let why = sanitize_str(&finding.why);
    paragraph(out, &why, width, indent, Style::new())?;
    if let Some(cleared) = &finding.cleared {
        let text = format!("cleared on {}: {}", cleared.date, cleared.reason);
        paragraph(out, &sanitize_str(&text), width, indent, DIM)?;
    }
    Ok(())
}

/// Writes the next step, its confirmation and the fix, one per line. Does not repeat the same
/// advice.
fn write_next(out: &mut dyn Write, step: &str, told: &str, width: usize) -> anyhow::Result<()> {
    let steps = match step == told {
        true => vec![("next", "see above")],
        false => document::steps(step).to_vec(),
    };
    for (word, text) in steps.into_iter().filter(|(_, text)| !text.is_empty()) {
        let text = format!("{word}: {text}");
        paragraph(out, &sanitize_str(&text), Some(width), (4, 4), DIM)?;
    }
    Ok(())
}

/// `soft-limit 1024: 107 used (10.4 %), reached in 3.1 min (3.0 min to 3.2 min)`.
#[must_use]
pub fn wall_line(wall: &Forecast) -> String {
    let used = wall
        .used
        .map_or("unknown".to_owned(), |used| used.to_string());
    let percent = wall
        .percent
        .map_or(String::new(), |percent| format!(" ({percent} %)"));
    let mut text = format!("{} {}: {used} used{percent}", wall.name, wall.at);
    if let Some(eta) = wall.eta_seconds {
        let soonest = duration(wall.soonest_seconds.unwrap_or(eta));
        let range = match wall.latest_seconds.map(duration) {
            // Omit a range of one value.
            Some(latest) if latest == soonest => String::new(),
            Some(latest) => format!(" ({soonest} to {latest})"),
            None => format!(" ({soonest} or later)"),
        };
        text.push_str(&match eta {
            eta if eta <= 0.0 => ", reached".to_owned(),
            eta => format!(", reached in {}{range}", duration(eta)),
        });
    }
    if let Some(condition) = &wall.only_if {
        text.push_str(", ");
        text.push_str(condition);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Forecast, paragraph, wall_line, write_next};

    fn wall(eta: f64, soonest: f64, latest: Option<f64>) -> String {
        wall_line(&Forecast {
            name: "soft-limit".to_owned(),
            at: 1024,
            used: Some(107),
            left: Some(917),
            percent: Some(10.4),
            rate_per_min: Some(1.0),
            eta_seconds: Some(eta),
            soonest_seconds: Some(soonest),
            latest_seconds: latest,
            only_if: None,
        })
    }

    #[test]
    fn r13_the_way_to_a_wall_has_a_range_where_it_is_one() {
        let head = "soft-limit 1024: 107 used (10.4 %), reached";
        let range = wall(186.0, 180.0, Some(192.0));
        assert_eq!(range, format!("{head} in 3.1 min (3.0 min to 3.2 min)"));
        assert_eq!(
            wall(186.0, 186.0, Some(187.0)),
            format!("{head} in 3.1 min")
        );
        let open = wall(186.0, 180.0, None);
        assert_eq!(open, format!("{head} in 3.1 min (3.0 min or later)"));
        assert_eq!(wall(0.0, 0.0, Some(0.0)), head);
    }

    #[test]
    fn advice_is_told_in_lines_and_once() {
        let told = |step: &str, before: &str| {
            let mut out = Vec::new();
            write_next(&mut out, step, before, 80).unwrap();
            let plain = anstream::adapter::strip_bytes(&out).into_vec();
            String::from_utf8(plain).unwrap()
        };
        let step = "a pool Confirm: count Fix: close it";
        assert_eq!(
            told(step, ""),
            "    next: a pool\n    confirm: count\n    fix: close it\n"
        );
        assert_eq!(told(step, step), "    next: see above\n");
        assert_eq!(told("look", step), "    next: look\n");
    }

    #[test]
    fn a_narrow_terminal_gets_narrow_lines() {
        let mut out = Vec::new();
        let text = "words and more words, and one-that-is-far-too-long-to-fit in it";
        paragraph(&mut out, text, Some(24), (2, 2), anstyle::Style::new()).unwrap();
        let lines = String::from_utf8(out).unwrap();
        for line in lines.lines().filter(|line| !line.contains("far-too")) {
            assert!(line.chars().count() <= 24, "{line:?}");
        }
        let words: Vec<&str> = lines.split_whitespace().collect();
        assert_eq!(words.join(" "), text);
    }
}
