//! More descriptors than the user set, however far the walls are.

use super::{Case, Rule};
use crate::finding::Finding;
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "absolute-level",
    severity: Severity::Warning,
    summary: "more descriptors than the absolute level that was set (`--max`)",
    cwe: Some(774),
    requirement: "R12",
    check,
};

fn check(case: &Case<'_>) -> Vec<Finding> {
    let levels = &case.settings.levels;
    let count = case.timeline.count();
    let Some((count, most)) = count
        .zip(levels.absolute)
        .filter(|(count, most)| count > most)
    else {
        return Vec::new();
    };
    let mut finding = Finding {
        class: case.largest_class(),
        count: Some(count),
        ..case.finding(&RULE, RULE.severity)
    };
    case.advise(&mut finding);
    finding.why = format!("{count} descriptors are open, {most} were allowed");
    vec![finding]
}
