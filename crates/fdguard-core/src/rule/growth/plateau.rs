//! A change that is not a leak, reported so that it is not mistaken for one.

use super::{Case, Rule, RuleKind};
use crate::finding::Finding;
use crate::judge::{Shape, Verdict};
use crate::lint::Severity;
use crate::rising_group::{self, RisingGroup};
use crate::units::plural;

pub(super) const RULE: Rule = Rule {
    id: "plateau",
    kind: RuleKind::Growth,
    severity: Severity::Info,
    summary: "the number of descriptors rose and levelled off, or moves within bounds",
    cwe: None,
    requirement: "R13",
    fix: None,
};

/// Smaller changes are not worth a line.
const LEAST: u64 = 10;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    // A number that cannot rise further is not level because it is enough.
    let soft = case.wall("soft-limit");
    if soft.is_some_and(|wall| wall.left == Some(0)) {
        return Vec::new();
    }
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
            let group = judgement.group.unwrap_or(usize::MAX);
            let members = case.timeline.members(group).map(|(_, held)| held);
            let members: Vec<_> = members.collect();
            let (class, count) = (rising_group::most_common(&members), members.len() as u64);
            let culprit = RisingGroup {
                judgement: judgement.clone(),
                class,
                target: None,
                count,
                slope: None,
                oldest: None,
            };
            let mut finding = case.about(&RULE, &culprit);
            let noun = plural(count, "descriptor");
            let class = finding.class.as_ref();
            let class = class.map_or(String::new(), |class| format!("{class} "));
            finding.why = format!(
                "{count} {class}{noun}; the number {}",
                judgement.shape.phrase()
            );
            finding.next_step =
                "No action needed: the number stays within bounds so far.".to_owned();
            finding.advice = None;
            finding
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::Class;
    use crate::judge::{Shape, Verdict};
    use crate::lint::Severity;
    use crate::testing::watch_script::{settings, watched};

    #[test]
    fn r13_a_pool_that_is_full_is_said_to_be_no_leak() {
        let pool = watched(|t| {
            t.looks(1);
            for _ in 0..15 {
                t.open(Class::Pipe, "pipe:[7]", 2);
                t.looks(1);
            }
            t.looks(90);
        });
        let opinion = pool.opinion(&settings());
        assert_eq!(opinion.verdict, Verdict::Bounded);
        let found = pool.found("plateau", &settings());
        assert_eq!(found[0].severity, Severity::Info);
        assert_eq!(
            (&found[0].class, found[0].count),
            (&Some(Class::Pipe), Some(30))
        );
        assert!(
            found[0]
                .why
                .starts_with("30 pipe descriptors; the number rose"),
            "{}",
            found[0].why
        );
        assert_eq!(found[0].advice, None);
    }

    #[test]
    fn r13_a_collectors_saw_tooth_is_bounded() {
        let saw = watched(|t| {
            for _ in 0..8 {
                for _ in 0..12 {
                    t.open(Class::Regular, "/srv/a", 2);
                    t.looks(1);
                }
                t.close(&Class::Regular, 24);
            }
            t.looks(1);
        });
        let found = saw.found("plateau", &settings());
        assert_eq!(found[0].shape, Some(Shape::SawTooth));
    }

    #[test]
    fn r13_a_small_move_and_none_are_quiet() {
        let small = watched(|t| {
            t.open(Class::Regular, "/srv/a", 3);
            t.looks(1);
            t.open(Class::Pipe, "pipe:[7]", 6);
            t.looks(90);
        });
        assert_eq!(small.found("plateau", &settings()), []);
        assert_eq!(watched(|_| {}).found("plateau", &settings()), []);
    }
}
