//! Numbers that `select()` cannot name.

use super::{Case, Rule};
use crate::finding::Finding;
use crate::lint::Severity;
use crate::select_use::SelectUse;
use crate::wall::FD_SETSIZE;

pub(super) const RULE: Rule = Rule {
    id: "select-cliff",
    severity: Severity::Warning,
    summary: "descriptor numbers near or beyond 1024 in a program that can call select()",
    cwe: Some(787),
    requirement: "R7",
    check,
};

fn check(case: &Case<'_>) -> Vec<Finding> {
    let Some(objects) = case
        .select
        .filter(|select| matches!(select, SelectUse::Imports { .. }))
    else {
        return Vec::new();
    };
    let Some(wall) = case.wall("select-1024") else {
        return Vec::new();
    };
    let Some(severity) = case.settings.levels.judge(wall.percent, None) else {
        return Vec::new();
    };
    let highest = case.timeline.highest().map_or(0, u64::from);
    let why = if highest >= FD_SETSIZE {
        format!(
            "number {highest} is in use, select() ends at {}; the process {objects}",
            FD_SETSIZE - 1
        )
    } else {
        let left = wall.left.unwrap_or(0);
        format!("{left} numbers below {FD_SETSIZE} are free; the process {objects}")
    };
    vec![Finding {
        class: case.largest_class(),
        count: wall.used,
        walls: case.etas(),
        why,
        next_step: "use poll() or epoll in place of select(), or keep fewer descriptors; a higher limit makes it worse".to_owned(),
        ..case.finding(&RULE, severity)
    }]
}
