//! A rise that may or may not end.

use super::wording::{duration, subject};
use super::{Case, Rule};
use crate::finding::Finding;
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "growth",
    severity: Severity::Info,
    summary: "the number of descriptors rises; whether that ends cannot be told yet",
    cwe: None,
    requirement: "R13",
    check,
};

/// Beside a leak it is a side show; alone it is what the user asked about.
fn check(case: &Case<'_>) -> Vec<Finding> {
    let severity = if case.leaking.is_empty() {
        Severity::Warning
    } else {
        RULE.severity
    };
    let walls = case.etas();
    let culprits = case.growing.iter();
    culprits
        .map(|culprit| {
            let judgement = &culprit.judgement;
            let mut finding = case.about(&RULE, culprit);
            if finding.cleared.is_none() {
                finding.severity = severity;
            }
            finding.why = format!(
                "{} more {} in {}; {}",
                judgement.rise,
                subject(culprit),
                duration(judgement.span),
                judgement.shape.phrase(),
            );
            finding.next_step = format!(
                "watch it for longer than {} before you act. {}",
                duration(4.0 * judgement.span),
                finding.next_step
            );
            finding.walls = walls.clone();
            finding
        })
        .collect()
}
