//! Growth that may or may not stop.

use super::wording::subject;
use super::{Case, Rule, RuleKind};
use crate::finding::Finding;
use crate::lint::Severity;
use crate::units::duration;

pub(super) const RULE: Rule = Rule {
    id: "growth",
    kind: RuleKind::Growth,
    severity: Severity::Info,
    summary: "the number of descriptors is growing; too early to call it a leak",
    cwe: None,
    requirement: "R13",
    fix: None,
};

/// Next to a leak it is secondary; alone, or next to what was judged harmless, it is the main
/// result.
pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let severity = if case.leaks().next().is_none() {
        Severity::Warning
    } else {
        RULE.severity
    };
    let walls = case.etas();
    let rising_groups = case.growing.iter();
    rising_groups
        .map(|culprit| {
            let judgement = &culprit.judgement;
            let mut finding = case.about(&RULE, culprit);
            if finding.cleared.is_none() {
                finding.severity = severity;
            }
            finding.why = format!(
                "{} more {} in {}; too early to tell whether the growth will stop",
                judgement.rise,
                subject(culprit),
                duration(judgement.span),
            );
            finding.next_step = format!(
                "Watch for longer than {} before you act. {}",
                duration(4.0 * judgement.span),
                finding.next_step
            );
            finding.walls = walls.clone();
            finding
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::Class;
    use crate::judge::Verdict;
    use crate::lint::Severity;
    use crate::testing::watch_script::{settings, watched};

    #[test]
    fn r13_a_rise_too_short_to_be_a_leak_is_a_warning_to_watch_longer() {
        let short = watched(|t| {
            t.open(Class::Regular, "/srv/a", 10);
            t.drip(&Class::Eventfd, "anon_inode:[eventfd]", 14);
        });
        let opinion = short.opinion(&settings());
        assert_eq!(opinion.verdict, Verdict::Growing);
        let finding = &opinion.findings[0];
        assert_eq!(
            (finding.rule.as_str(), finding.severity),
            ("growth", Severity::Warning)
        );
        assert_eq!(finding.class, Some(Class::Eventfd));
        assert!(
            finding
                .next_step
                .starts_with("Watch for longer than 52 s before you act. ")
        );
        assert_eq!(opinion.rising(), ["eventfd"]);
    }

    #[test]
    fn r13_what_stands_still_or_was_hardly_seen_is_quiet() {
        let still = watched(|t| {
            t.open(Class::Regular, "/srv/a", 10);
            t.looks(14);
        });
        assert_eq!(still.found("growth", &settings()), []);
        let unseen = watched(|t| t.drip(&Class::Pipe, "pipe:[7]", 3));
        assert_eq!(unseen.found("growth", &settings()), []);
        assert_eq!(unseen.opinion(&settings()).verdict, Verdict::Unknown);
    }
}
