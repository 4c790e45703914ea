//! More descriptors than the expected amount of work needs.

use super::{Case, Rule, RuleKind};
use crate::config::Expectation;
use crate::finding::Finding;
use crate::lint::Severity;
use crate::rising_group;

pub(super) const RULE: Rule = Rule {
    id: "expected-budget",
    kind: RuleKind::Growth,
    severity: Severity::Warning,
    summary: "more than twice the expected number of descriptors is open (`--expect sessions=25*3`)",
    cwe: Some(774),
    requirement: "R12",
    fix: None,
};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
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
            let live = case.timeline.live().iter().map(|(_, held)| held);
            let counted: Vec<_> = live
                .filter(|held| expected.counts(&held.class, held.target.as_bytes()))
                .collect();
            // The finding is about the counted class, unless everything was counted.
            let class = if narrow {
                rising_group::most_common(&counted)
            } else {
                case.largest_class()
            };
            let mut finding = Finding {
                class,
                count: Some(observed),
                ..case.finding(&RULE, RULE.severity)
            };
            case.advise(&mut finding);
            finding.why = why(expected, observed);
            Some(finding)
        })
        .collect()
}

fn why(expected: &Expectation, observed: u64) -> String {
    let class = expected.class.as_ref();
    let class = class.map_or(String::new(), |class| format!("{class} "));
    let (name, units, each) = (&expected.name, expected.units, expected.per_unit);
    format!(
        "{observed} {class}descriptors are open, expected {} ({name}: {units} × {each})",
        expected.limit()
    )
}

#[cfg(test)]
mod tests {
    use crate::Class;
    use crate::finding::Finding;
    use crate::lint::Severity;
    use crate::testing::watch_script::{settings, watched};

    /// This many pipes beside 500 files.
    fn expecting(text: &str, pipes: usize, blind: bool) -> Vec<Finding> {
        let told = watched(|t| {
            if blind {
                t.blind();
            }
            t.open(Class::Regular, "/srv/a", 500);
            t.open(Class::Pipe, "pipe:[7]", pipes);
            t.looks(8);
        });
        let mut settings = settings();
        settings.expectations.push(text.parse().unwrap());
        told.found("expected-budget", &settings)
    }

    #[test]
    fn r12_more_than_twice_what_the_work_needs_is_a_warning() {
        assert_eq!(expecting("sessions=25*3@pipe", 150, false), []);
        let found = expecting("sessions=25*3@pipe", 151, false);
        assert_eq!(found[0].severity, Severity::Warning);
        let said = "151 pipe descriptors are open, expected 75 (sessions: 25 × 3)";
        assert_eq!(found[0].why, said);
    }

    #[test]
    fn r12_it_is_about_what_was_counted_and_not_about_the_largest_pile() {
        let found = expecting("sessions=25*3@pipe", 151, false);
        assert_eq!(
            (&found[0].class, found[0].count),
            (&Some(Class::Pipe), Some(151))
        );
        let all = expecting("sessions=100*3", 151, false);
        assert_eq!(
            (&all[0].class, all[0].count),
            (&Some(Class::Regular), Some(651))
        );
    }

    #[test]
    fn r12_a_count_is_enough_unless_a_class_is_asked_for() {
        assert_eq!(expecting("sessions=100*3", 151, true)[0].count, Some(651));
        assert_eq!(expecting("sessions=25*3@pipe", 151, true), []);
    }
}
