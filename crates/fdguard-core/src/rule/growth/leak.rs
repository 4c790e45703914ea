//! Descriptors that are opened steadily and stay open.

use super::wording::{closed, subject};
use super::{Case, Rule, RuleKind, SOON};
use crate::finding::Finding;
use crate::lint::Severity;
use crate::units::{duration, short_rate};

pub(super) const RULE: Rule = Rule {
    id: "leak",
    kind: RuleKind::Growth,
    severity: Severity::Warning,
    summary: "descriptors are opened steadily and never closed",
    cwe: Some(775),
    requirement: "R13",
    fix: None,
};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let walls = case.etas();
    // A limit that applies only under a condition is not an emergency.
    let certain = case.walls.iter().filter(|wall| wall.only_if.is_none());
    let mut etas = certain.filter_map(|wall| wall.eta_seconds);
    let full = case.wall("soft-limit").and_then(|wall| wall.percent);
    let is_full = full.is_some_and(|percent| percent >= case.settings.levels.critical);
    let is_urgent = etas.any(|eta| eta < SOON) || is_full;
    let rising_groups = case.leaking.iter();
    rising_groups
        .map(|culprit| {
            let judgement = &culprit.judgement;
            let mut finding = case.about(&RULE, culprit);
            let speed = culprit.slope.map_or(String::new(), |slope| {
                format!(" ({})", short_rate(slope.per_second))
            });
            finding.why = format!(
                "{} {} opened in {}{speed}{}. Still growing.",
                judgement.rise,
                subject(culprit),
                duration(judgement.span),
                closed(culprit),
            );
            finding.walls = walls.clone();
            if is_urgent && finding.cleared.is_none() {
                finding.severity = Severity::Critical;
            }
            finding
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::Class;
    use crate::judge::Verdict;
    use crate::lint::Severity;
    use crate::testing::watch_script::{leak, settings, watched};

    #[test]
    fn r13_a_drip_is_a_leak_with_its_class_its_rate_and_its_walls() {
        let opinion = leak(&Class::Pipe, "pipe:[7]", 80).opinion(&settings());
        assert_eq!(opinion.verdict, Verdict::Leaking);
        let finding = &opinion.findings[0];
        assert_eq!(finding.rule, "leak");
        assert_eq!(
            (&finding.class, finding.count),
            (&Some(Class::Pipe), Some(80))
        );
        assert_eq!(finding.rate_per_min, Some(60.0));
        assert_eq!(finding.walls[0].name, "soft-limit");
        let said = " pipe descriptors opened in ";
        assert!(finding.why.contains(said), "{}", finding.why);
        assert!(
            finding
                .why
                .ends_with(" (1.0/s), none closed. Still growing."),
            "{}",
            finding.why
        );
    }

    #[test]
    fn r13_a_leak_that_hits_the_limit_within_the_hour_is_critical() {
        let far = leak(&Class::Pipe, "pipe:[7]", 80).found("leak", &settings());
        assert_eq!(far[0].severity, Severity::Warning);
        let near = watched(|t| {
            t.limits(1024, 65_536);
            t.drip(&Class::Pipe, "pipe:[7]", 80);
        });
        assert_eq!(
            near.found("leak", &settings())[0].severity,
            Severity::Critical
        );
    }

    #[test]
    fn r7_a_wall_that_may_be_none_is_no_emergency() {
        let opinion = leak(&Class::Pipe, "pipe:[7]", 80).opinion(&settings());
        let walls = &opinion.findings[0].walls;
        assert_eq!(walls.last().unwrap().name, "select-1024");
        assert!(walls.last().unwrap().eta_seconds < 3600.0);
        assert_eq!(opinion.findings[0].severity, Severity::Warning);
    }

    #[test]
    fn r13_a_pool_that_is_full_and_what_cannot_be_listed_twice_are_no_leak() {
        let pool = watched(|t| {
            t.drip(&Class::Pipe, "pipe:[7]", 30);
            t.looks(90);
        });
        assert_eq!(pool.found("leak", &settings()), []);
        assert_eq!(watched(|_| {}).found("leak", &settings()), []);
    }

    #[test]
    fn r13_a_count_that_only_rises_is_a_leak_of_unknown_class() {
        let blind = watched(|t| {
            t.blind();
            t.drip(&Class::Pipe, "pipe:[7]", 80);
        });
        let found = blind.found("leak", &settings());
        assert_eq!(found[0].class, None);
        assert!(
            found[0]
                .why
                .ends_with("; closes in between could not be observed. Still growing.")
        );
        assert!(found[0].next_step.starts_with("Run `fdguard snap"));
    }
}
