//! Descriptor numbers that `select()` cannot handle.

use super::{Case, Rule, RuleKind};
use crate::finding::Finding;
use crate::lint::Severity;
use crate::select_use::SelectUse;
use crate::wall::FD_SETSIZE;

pub(super) const RULE: Rule = Rule {
    id: "select-cliff",
    kind: RuleKind::Growth,
    severity: Severity::Warning,
    summary: "descriptor numbers close to or above 1024 in a program that can call select()",
    cwe: Some(787),
    requirement: "R7",
    fix: None,
};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let Some(objects) = case
        .select
        .filter(|select| matches!(select, SelectUse::Imports { .. }))
    else {
        return Vec::new();
    };
    let Some(wall) = case.wall("select-1024") else {
        return Vec::new();
    };
    if case.settings.levels.judge(wall.percent, None).is_none() {
        return Vec::new();
    }
    let highest = case.timeline.highest().map_or(0, u64::from);
    let why = if highest >= FD_SETSIZE {
        format!(
            "descriptor {highest} is open, but select() supports numbers up to {}; the process {objects}",
            FD_SETSIZE - 1
        )
    } else {
        let free = match wall.left.unwrap_or(0) {
            1 => "1 number below 1024 is free".to_owned(),
            left => format!("{left} numbers below 1024 are free"),
        };
        format!("{free}; the process {objects}")
    };
    vec![Finding {
        class: case.largest_class(),
        count: wall.used,
        walls: case.etas(),
        why,
        next_step: "Use poll() or epoll instead of select(), or keep fewer descriptors open. A higher limit makes it worse. `fdguard trace` shows whether select() is called with such a number (select-past-1024).".to_owned(),
        // It could call select(). Only a tracer sees whether it does, and reports that as critical.
        ..case.finding(&RULE, RULE.severity)
    }]
}

#[cfg(test)]
mod tests {
    use crate::Class;
    use crate::finding::Finding;
    use crate::lint::Severity;
    use crate::select_use::SelectUse;
    use crate::testing::watch_script::{WatchScript, selects, settings, watched};

    fn found(mut told: WatchScript, select: Option<SelectUse>) -> Vec<Finding> {
        told.select = select;
        told.found("select-cliff", &settings())
    }

    fn holding(count: usize) -> WatchScript {
        watched(|t| {
            t.open(Class::Regular, "/srv/a", count);
            t.looks(8);
        })
    }

    #[test]
    fn r7_numbers_near_and_beyond_1024_warn_who_could_call_select() {
        assert_eq!(found(holding(700), Some(selects())), []);
        let near = &found(holding(1023), Some(selects()))[0];
        assert_eq!(near.severity, Severity::Warning);
        let said =
            "1 number below 1024 is free; the process can call select(): libold.so imports it";
        assert_eq!(near.why, said);
        let some = &found(holding(800), Some(selects()))[0];
        assert_eq!(some.severity, Severity::Warning);
        assert!(some.why.starts_with("224 numbers below 1024 are free; "));
        let beyond = &found(holding(1101), Some(selects()))[0];
        assert_eq!(beyond.severity, Severity::Warning);
        assert!(
            beyond
                .why
                .starts_with("descriptor 1100 is open, but select() supports numbers up to 1023; ")
        );
    }

    #[test]
    fn r7_free_numbers_count_and_not_the_highest() {
        let high = watched(|t| {
            t.open(Class::Regular, "/srv/a", 10);
            t.open_at(1000, Class::Regular, "/srv/a");
            t.looks(8);
        });
        assert_eq!(found(high, Some(selects())), []);
    }

    #[test]
    fn r7_who_cannot_call_it_or_may_not_is_left_alone() {
        for select in [None, Some(SelectUse::Absent), Some(SelectUse::unknown("x"))] {
            assert_eq!(found(holding(1101), select), []);
        }
    }
}
