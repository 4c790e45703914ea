//! Children that grow in number, or exit and are not waited for.

use super::{Case, Rule, RuleKind};
use crate::finding::Finding;
use crate::lint::Severity;
use crate::units::duration;

pub(super) const RULE: Rule = Rule {
    id: "children-growth",
    kind: RuleKind::Growth,
    severity: Severity::Info,
    summary: "the number of children or zombies grew during the watch",
    cwe: None,
    requirement: "R8",
    fix: None,
};

/// A smaller change is normal work.
const LEAST: u64 = 5;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let Some((first, last)) = case.timeline.families() else {
        return Vec::new();
    };
    let more = last.children.saturating_sub(first.children);
    let zombies = last.zombies.saturating_sub(first.zombies);
    if more < LEAST && zombies < LEAST {
        return Vec::new();
    }
    let ago = duration(case.timeline.watched());
    let children = last.children;
    let mut why = match more {
        0 => format!("{children} children, no increase in {ago}"),
        _ => format!("{children} children, {more} more than {ago} ago"),
    };
    match last.zombies {
        0 => {}
        1 => why.push_str("; 1 of them exited and was not waited for"),
        ended => why.push_str(&format!("; {ended} of them exited and were not waited for")),
    }
    vec![Finding {
        count: Some(children),
        grown: i64::try_from(more).ok(),
        confidence: 0.6,
        why,
        next_step:
            "Wait for every child that is started, and terminate those that are no longer needed."
                .to_owned(),
        ..case.finding(&RULE, RULE.severity)
    }]
}

#[cfg(test)]
mod tests {
    use crate::finding::Finding;
    use crate::lint::Severity;
    use crate::testing::watch_script::{settings, watched};

    fn between(first: (u64, u64), last: (u64, u64)) -> Vec<Finding> {
        let told = watched(|t| {
            t.family(first.0, first.1);
            t.looks(60);
            t.family(last.0, last.1);
            t.looks(1);
        });
        told.found("children-growth", &settings())
    }

    #[test]
    fn r8_more_children_are_worth_knowing() {
        let found = between((2, 0), (12, 0));
        assert_eq!(found[0].severity, Severity::Info);
        assert_eq!(found[0].why, "12 children, 10 more than 60 s ago");
        assert_eq!((found[0].count, found[0].grown), (Some(12), Some(10)));
    }

    #[test]
    fn r8_those_that_ended_are_counted_and_one_is_singular() {
        let one = &between((2, 0), (12, 1))[0].why;
        assert!(
            one.ends_with("; 1 of them exited and was not waited for"),
            "{one}"
        );
        let said = "9 children, no increase in 60 s; 6 of them exited and were not waited for";
        assert_eq!(between((9, 0), (9, 6))[0].why, said);
    }

    #[test]
    fn r8_a_few_fewer_or_unknown_are_quiet() {
        assert_eq!(between((2, 0), (6, 4)), []);
        assert_eq!(between((20, 9), (2, 0)), []);
        let unknown = watched(|t| t.looks(60));
        assert_eq!(unknown.found("children-growth", &settings()), []);
    }
}
