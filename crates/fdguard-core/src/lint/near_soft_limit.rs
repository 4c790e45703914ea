//! Little room left below the soft limit.

use super::{LintMatch, Rule, RuleKind, Severity};
use crate::{Snapshot, wall};

pub(super) const RULE: Rule = Rule {
    id: "near-soft-limit",
    kind: RuleKind::Lint,
    severity: Severity::Warning,
    summary: "more than 70 % of the soft limit on open files is in use",
    cwe: Some(774),
    requirement: "R12",
    fix: Some(
        "find what holds them (classes and targets above) and watch whether the number grows; raising the limit only buys time",
    ),
};

/// Needs only the count, so it works in the radar tier too.
pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    let Some((count, soft)) = snapshot.count.zip(snapshot.limits.soft) else {
        return Vec::new();
    };
    let Some(share) = wall::percent(count, soft).filter(|share| *share > wall::WARNING_ABOVE)
    else {
        return Vec::new();
    };
    // A limit may have been lowered below what was open already.
    let left = soft.saturating_sub(count);
    let used = format!("{count} of {soft} descriptors are open ({share} %), {left} left");
    vec![if share >= wall::CRITICAL_FROM {
        let message = format!("{used}: refuse new work");
        LintMatch::new(message, Vec::new()).at(Severity::Critical)
    } else {
        LintMatch::new(used, Vec::new())
    }]
}

#[cfg(test)]
mod tests {
    use super::{Severity, check};
    use crate::Snapshot;
    use crate::snapshot::Limits;
    use crate::testing::radar;

    fn with(count: Option<u64>, soft: Option<u64>) -> Snapshot {
        Snapshot {
            count,
            limits: Limits { soft, hard: None },
            ..radar(0)
        }
    }

    #[test]
    fn r12_above_seventy_percent_it_warns() {
        let found = check(&with(Some(720), Some(1024)));
        assert_eq!(
            found[0].message,
            "720 of 1024 descriptors are open (70.3 %), 304 left"
        );
        assert_eq!(found[0].severity, None);
    }

    #[test]
    fn r12_from_ninety_percent_it_says_to_refuse_new_work() {
        let found = check(&with(Some(998), Some(1024)));
        assert_eq!(
            found[0].message,
            "998 of 1024 descriptors are open (97.5 %), 26 left: refuse new work"
        );
        assert_eq!(found[0].severity, Some(Severity::Critical));
        let exactly = check(&with(Some(900), Some(1000)));
        assert_eq!(exactly[0].severity, Some(Severity::Critical));
    }

    #[test]
    fn r12_a_limit_lowered_below_the_count_leaves_nothing() {
        let found = check(&with(Some(300), Some(256)));
        assert!(found[0].message.contains("(117.2 %), 0 left"), "{found:?}");
    }

    #[test]
    fn r12_seventy_percent_and_unknown_limits_are_quiet() {
        assert!(check(&with(Some(700), Some(1000))).is_empty());
        assert!(check(&with(None, Some(1024))).is_empty());
        assert!(check(&with(Some(998), None)).is_empty());
        assert!(check(&with(Some(3), Some(0))).is_empty());
    }
}
