//! More descriptors than the work at hand can need.

use super::{Case, Rule};
use crate::finding::Finding;
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "expected-budget",
    severity: Severity::Warning,
    summary: "more than twice what was expected for so many units (`--expect sessions=25*3`)",
    cwe: Some(774),
    requirement: "R12",
    check,
};

fn check(case: &Case<'_>) -> Vec<Finding> {
    let expectations = case.settings.expectations.iter();
    expectations
        .filter_map(|expected| {
            let narrow = expected.class.is_some() || expected.target.is_some();
            let observed = if narrow || case.timeline.is_listed() {
                case.timeline
                    .count_of(|class, held| expected.counts(class, held.target.as_bytes()))
            } else {
                case.timeline.count()?
            };
            if !expected.breached_by(observed) {
                return None;
            }
            let mut finding = Finding {
                class: case.largest_class(),
                count: Some(observed),
                ..case.finding(&RULE, RULE.severity)
            };
            case.advise(&mut finding);
            finding.why = format!(
                "{observed} descriptors for {} {} of {} each, which makes {}",
                expected.units,
                expected.name,
                expected.per_unit,
                expected.limit(),
            );
            Some(finding)
        })
        .collect()
}
