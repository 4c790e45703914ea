//! More descriptors than the user allows, however far away the limits are.

use super::{Case, Rule, RuleKind};
use crate::finding::Finding;
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "absolute-level",
    kind: RuleKind::Growth,
    severity: Severity::Warning,
    summary: "more descriptors are open than the configured maximum (`--max`)",
    cwe: Some(774),
    requirement: "R12",
    fix: None,
};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
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
    finding.why = format!("{count} descriptors are open, the configured maximum is {most}");
    vec![finding]
}

#[cfg(test)]
mod tests {
    use crate::Class;
    use crate::lint::Severity;
    use crate::testing::watch_script::{configured, settings, watched};

    #[test]
    fn r12_above_the_absolute_level_is_a_warning_however_far_the_limit_is() {
        let many = watched(|t| {
            t.open(Class::Regular, "/srv/a", 801);
            t.looks(8);
        });
        let found = many.found("absolute-level", &configured("[levels]\nabsolute = 800"));
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(
            (found[0].count, &found[0].class),
            (Some(801), &Some(Class::Regular))
        );
        let said = "801 descriptors are open, the configured maximum is 800";
        assert_eq!(found[0].why, said);
    }

    #[test]
    fn r12_at_the_level_or_without_one_it_is_quiet() {
        let many = watched(|t| {
            t.open(Class::Regular, "/srv/a", 801);
            t.looks(8);
        });
        assert_eq!(many.found("absolute-level", &settings()), []);
        let at_it = configured("[levels]\nabsolute = 801");
        assert_eq!(many.found("absolute-level", &at_it), []);
    }

    #[test]
    fn r12_a_count_is_enough_and_without_one_nothing_is_said() {
        let settings = configured("[levels]\nabsolute = 5");
        let blind = watched(|t| {
            t.blind();
            t.open(Class::Regular, "/srv/a", 6);
            t.looks(8);
        });
        let found = blind.found("absolute-level", &settings);
        assert_eq!((found.len(), &found[0].class), (1, &None));
        assert!(found[0].next_step.contains("fdguard snap"));
        assert_eq!(watched(|_| {}).found("absolute-level", &settings), []);
    }
}
