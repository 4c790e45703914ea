//! Little room left below the soft limit.

use super::{Case, Rule};
use crate::finding::Finding;
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "soft-limit-level",
    severity: Severity::Warning,
    summary: "more of the soft limit on open files is used than the levels allow (70 % and 90 %)",
    cwe: Some(774),
    requirement: "R12",
    check,
};

fn check(case: &Case<'_>) -> Vec<Finding> {
    let Some(wall) = case.wall("soft-limit") else {
        return Vec::new();
    };
    let Some(percent) = wall.percent else {
        return Vec::new();
    };
    let Some(severity) = case.settings.levels.judge(Some(percent), None) else {
        return Vec::new();
    };
    let (used, at) = (wall.used.unwrap_or(0), wall.at);
    let mut finding = Finding {
        class: case.largest_class(),
        count: wall.used,
        walls: case.etas(),
        ..case.finding(&RULE, severity)
    };
    case.advise(&mut finding);
    let order = if severity == Severity::Critical {
        ": refuse new work"
    } else {
        ""
    };
    finding.why = format!("{used} of {at} descriptors are open ({percent} %){order}");
    finding.next_step = format!(
        "most are {}. {} Raising the limit only buys time.",
        finding
            .class
            .as_ref()
            .map_or("of unknown class".to_owned(), ToString::to_string),
        finding.next_step
    );
    vec![finding]
}
