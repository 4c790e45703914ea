//! The first sentence of the report.

use fdguard_core::evidence::Evidence;
use fdguard_core::finding::{Finding, WallEta};
use fdguard_core::forecast::Forecast;
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::units;
use fdguard_core::wall;

use super::super::table::{class_name, counted, thousands};
use super::outline::suspects;
use crate::report::diagnosis::word;
use crate::report::document::ReportHeadline;
use crate::terminal::sanitize;

/// Puts the verdict into a sentence.
#[must_use]
pub fn headline(evidence: &Evidence) -> ReportHeadline {
    let diagnosis = &evidence.diagnosis;
    let rising = |rule: &str| -> Vec<&Finding> {
        let findings = diagnosis.findings.iter();
        findings
            .filter(|one| one.rule == rule && one.cleared.is_none())
            .collect()
    };
    let text = match diagnosis.verdict {
        Verdict::Leaking => risen(evidence, &rising("leak")),
        Verdict::Growing => format!(
            "{}; too early to tell whether this is a leak: watch longer with --for 5min",
            risen(evidence, &rising("growth"))
        ),
        Verdict::Bounded => {
            let range = range(evidence).unwrap_or_else(|| "the count varied".to_owned());
            format!("{range} but does not keep rising")
        }
        Verdict::Stable => held(evidence),
        Verdict::Unknown => "not enough data for a verdict".to_owned(),
    };
    let lints: Vec<Severity> = suspects(evidence)
        .iter()
        .map(|(hit, _, _)| hit.severity)
        .filter(|severity| *severity > Severity::Info)
        .collect();
    let findings = diagnosis.findings.iter().map(|finding| finding.severity);
    let hits = lints.len() as u64;
    let beside = match hits {
        0 => String::new(),
        _ => format!("; {}", counted(hits, "problem")),
    };
    ReportHeadline {
        severity: lints
            .into_iter()
            .chain(findings)
            .filter(|severity| *severity > Severity::Info)
            .max(),
        word: word(diagnosis.verdict),
        text: format!("{text}{beside}"),
    }
}

/// `5.0 regular descriptors a second on /tmp/agent-*/log.jsonl; the soft limit of 1,024 is reached
/// in 3.2 min`
fn risen(evidence: &Evidence, findings: &[&Finding]) -> String {
    let Some(first) = findings.first() else {
        return "the count rises".to_owned();
    };
    let class = first
        .class
        .as_ref()
        .map(|class| format!("{} ", class_name(class)));
    let class = class.unwrap_or_default();
    let mut text = match first.rate_per_min {
        Some(rate) => {
            let rate = units::rate(rate / 60.0);
            match rate.split_once(' ') {
                Some((number, unit)) => format!("{number} {class}descriptors {unit}"),
                None => format!("{class}descriptors at {rate}"),
            }
        }
        None => format!("{class}descriptors"),
    };
    let target = first.target.as_ref().map(sanitize);
    if let Some(target) =
        target.filter(|target| Some(target) != first.class.as_ref().map(class_name).as_ref())
    {
        text.push_str(&format!(" on {target}"));
    }
    if evidence.material.visits.len() > 1 {
        text.push_str(&format!(
            " in {} (pid {})",
            sanitize(&first.comm),
            first.pid
        ));
    }
    let others = findings.len().saturating_sub(1) as u64;
    if others > 0 {
        text.push_str(&format!(", and {} more (see below)", thousands(others)));
    }
    if let Some(wall) = first.walls.first() {
        text.push_str(&format!("; {}", reached(evidence, first, wall)));
    }
    text
}

fn reached(evidence: &Evidence, finding: &Finding, wall: &WallEta) -> String {
    let opinion = evidence
        .diagnosis
        .processes
        .iter()
        .find(|one| one.pid == finding.pid);
    let forecast = opinion.and_then(|one| one.walls.iter().find(|other| other.name == wall.name));
    let place = match forecast {
        Some(forecast) => wall_name(forecast),
        None => format!("the {}", wall.name.replace('-', " ")),
    };
    if wall.eta_seconds < 1.0 {
        return format!("{place} is reached");
    }
    format!(
        "{place} is reached in {}",
        units::duration(wall.eta_seconds)
    )
}

/// `the soft limit of 1,024`
fn wall_name(wall: &Forecast) -> String {
    match wall.name.as_str() {
        "select-1024" => "fd 1024, the limit of select(),".to_owned(),
        name => format!("the {} of {}", name.replace('-', " "), thousands(wall.at)),
    }
}

fn range(evidence: &Evidence) -> Option<String> {
    let curves = evidence.examined.first()?.curves.as_ref()?;
    let least = curves.total.points.iter().map(|point| point.min).min()?;
    let most = curves.total.highest();
    Some(format!(
        "the count varied between {} and {}",
        thousands(least.into()),
        thousands(most.into())
    ))
}

fn held(evidence: &Evidence) -> String {
    let diagnosis = &evidence.diagnosis;
    let watched = diagnosis
        .processes
        .first()
        .map_or(0.0, |one| one.watched_seconds);
    let watched = units::duration(watched);
    let soft = evidence
        .material
        .visits
        .first()
        .and_then(|visit| visit.latest().limits.soft);
    let near = evidence
        .examined
        .first()
        .and_then(|one| one.latest.percent_of_soft);
    let near = near
        .filter(|percent| *percent > wall::WARNING_ABOVE)
        .zip(soft);
    match (diagnosis.baseline, diagnosis.last) {
        (Some(first), Some(last)) if first == last => {
            let near = near.map_or_else(String::new, |(percent, soft)| {
                format!(", {percent} % of the soft limit of {}", thousands(soft))
            });
            let descriptors = counted(last, "descriptor");
            format!("{descriptors}, no change in {watched}{near}")
        }
        (Some(first), Some(last)) => format!(
            "{} descriptors, {} after {watched}",
            thousands(first),
            thousands(last)
        ),
        _ => format!("no growth in {watched}"),
    }
}
