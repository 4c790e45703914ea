//! Little room left below the soft limit.

use super::{Case, Rule, RuleKind};
use crate::finding::Finding;
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "soft-limit-level",
    kind: RuleKind::Growth,
    severity: Severity::Warning,
    summary: "usage of the soft limit on open files is above a level (70 % and 90 % by default)",
    cwe: Some(774),
    requirement: "R12",
    fix: None,
};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
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
    let which = match (&finding.class, case.leaks().next()) {
        (Some(class), Some(_)) => format!("The leaking class is {class}. "),
        (Some(class), None) => format!("Most are of class {class}. "),
        (None, _) => String::new(),
    };
    finding.next_step = format!(
        "{which}{} Raising the limit only buys time.",
        finding.next_step
    );
    vec![finding]
}

#[cfg(test)]
mod tests {
    use crate::Class;
    use crate::finding::Finding;
    use crate::lint::Severity;
    use crate::testing::watch_script::{configured, settings, watched};

    fn holding(count: usize) -> Vec<Finding> {
        let told = watched(|t| {
            t.limits(1000, 1000);
            t.open(Class::Regular, "/srv/a", count);
            t.looks(8);
        });
        told.found("soft-limit-level", &settings())
    }

    #[test]
    fn r12_above_70_percent_is_a_warning_and_from_90_on_critical() {
        assert_eq!(holding(700), []);
        assert_eq!(holding(701)[0].severity, Severity::Warning);
        assert_eq!(
            holding(701)[0].why,
            "701 of 1000 descriptors are open (70.1 %)"
        );
        assert_eq!(holding(899)[0].severity, Severity::Warning);
        let full = &holding(900)[0];
        assert_eq!(full.severity, Severity::Critical);
        assert_eq!(
            full.why,
            "900 of 1000 descriptors are open (90 %): refuse new work"
        );
        assert!(
            full.next_step
                .starts_with("Most are of class regular. Likely source: ")
        );
        assert!(
            full.next_step
                .ends_with(". Raising the limit only buys time.")
        );
    }

    #[test]
    fn r12_the_user_sets_the_levels() {
        let told = watched(|t| {
            t.limits(1000, 1000);
            t.open(Class::Regular, "/srv/a", 501);
            t.looks(8);
        });
        let settings = configured("[levels]\nwarning = 40\ncritical = 50");
        let found = told.found("soft-limit-level", &settings);
        assert_eq!(found[0].severity, Severity::Critical);
    }

    #[test]
    fn r12_what_leaks_is_named_and_not_called_the_most() {
        let told = watched(|t| {
            t.limits(1000, 1000);
            t.open(Class::Regular, "/srv/a", 650);
            t.drip(&Class::Pipe, "pipe:[7]", 80);
        });
        let found = told.found("soft-limit-level", &settings());
        assert_eq!(found[0].class, Some(Class::Pipe));
        assert!(
            found[0]
                .next_step
                .starts_with("The leaking class is pipe. ")
        );
    }

    #[test]
    fn r12_without_a_limit_or_a_count_nothing_is_said() {
        let mut unknown = watched(|t| {
            t.open(Class::Regular, "/srv/a", 900);
            t.looks(8);
        });
        unknown.looks[0].limits = None;
        assert_eq!(unknown.found("soft-limit-level", &settings()), []);
    }
}
