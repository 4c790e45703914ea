//! Children that become more, or end and are not waited for.

use super::wording::duration;
use super::{Case, Rule};
use crate::finding::Finding;
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "children-growth",
    severity: Severity::Info,
    summary: "children or zombies became more during the watch",
    cwe: None,
    requirement: "R8",
    check,
};

/// A few more or less is a program at work.
const LEAST: u64 = 5;

fn check(case: &Case<'_>) -> Vec<Finding> {
    let Some((first, last)) = case.timeline.families() else {
        return Vec::new();
    };
    let more = last.children.saturating_sub(first.children);
    let zombies = last.zombies.saturating_sub(first.zombies);
    if more < LEAST && zombies < LEAST {
        return Vec::new();
    }
    vec![Finding {
        count: Some(last.children),
        grown: i64::try_from(more).ok(),
        confidence: 0.6,
        why: format!(
            "{} children, {more} more than {} ago; {} of them ended and were not waited for",
            last.children,
            duration(case.timeline.watched()),
            last.zombies,
        ),
        next_step: "wait for each child that is started, and end those that are no longer used"
            .to_owned(),
        ..case.finding(&RULE, RULE.severity)
    }]
}
