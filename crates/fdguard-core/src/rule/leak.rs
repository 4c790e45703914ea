//! Descriptors that are opened again and again and stay.

use super::wording::{closed, duration, rate, subject};
use super::{Case, Rule, SOON};
use crate::finding::Finding;
use crate::lint::Severity;
use crate::wall;

pub(super) const RULE: Rule = Rule {
    id: "leak",
    severity: Severity::Warning,
    summary: "descriptors are opened steadily and never closed",
    cwe: Some(775),
    requirement: "R13",
    check,
};

fn check(case: &Case<'_>) -> Vec<Finding> {
    let walls = case.etas();
    let soonest = walls.first().map(|wall| wall.eta_seconds);
    let full = case.wall("soft-limit").and_then(|wall| wall.percent);
    let critical = case.settings.levels.critical.min(wall::CRITICAL_FROM);
    let is_urgent = soonest.is_some_and(|eta| eta < SOON) || full.is_some_and(|p| p >= critical);
    let culprits = case.leaking.iter();
    culprits
        .map(|culprit| {
            let judgement = &culprit.judgement;
            let mut finding = case.about(&RULE, culprit);
            let speed = culprit.slope.map_or(String::new(), |slope| {
                format!(", {}", rate(slope.per_second))
            });
            finding.why = format!(
                "{} more {} in {} and still open{speed}, in {} steps until now; {}",
                judgement.rise,
                subject(culprit),
                duration(judgement.span),
                judgement.steps,
                closed(culprit),
            );
            finding.walls = walls.clone();
            if is_urgent && finding.cleared.is_none() {
                finding.severity = Severity::Critical;
            }
            finding
        })
        .collect()
}
