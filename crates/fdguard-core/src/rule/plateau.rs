//! What moved and is no leak: said, so that nobody takes it for one.

use super::{Case, Rule};
use crate::culprit::Culprit;
use crate::finding::Finding;
use crate::judge::{Shape, Verdict};
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "plateau",
    severity: Severity::Info,
    summary: "descriptors became more and have been level since, or rise and fall within bounds",
    cwe: None,
    requirement: "R13",
    check,
};

/// Smaller moves are not worth a line.
const LEAST: u64 = 10;

fn check(case: &Case<'_>) -> Vec<Finding> {
    let families: Vec<usize> = case
        .timeline
        .groups()
        .filter(|(_, group)| group.key.target.is_none())
        .map(|(index, _)| index)
        .collect();
    let moved = case.judgements.iter().filter(|judgement| {
        judgement.verdict == Verdict::Bounded
            && judgement
                .group
                .is_some_and(|group| families.contains(&group))
            && (judgement.rise >= LEAST || judgement.shape == Shape::SawTooth)
    });
    moved
        .map(|judgement| {
            let members = case.timeline.members(judgement.group.unwrap_or(usize::MAX));
            let classes = members.map(|(_, held)| held.class.clone());
            let class = classes.last();
            let count = case
                .timeline
                .members(judgement.group.unwrap_or(usize::MAX))
                .count() as u64;
            let culprit = Culprit {
                judgement: judgement.clone(),
                class,
                target: None,
                count,
                slope: None,
                oldest: None,
            };
            let mut finding = case.about(&RULE, &culprit);
            finding.why = format!("{} descriptors: {}", count, judgement.shape.phrase());
            finding.next_step = "nothing: it stays within bounds so far".to_owned();
            finding.advice = None;
            finding
        })
        .collect()
}
