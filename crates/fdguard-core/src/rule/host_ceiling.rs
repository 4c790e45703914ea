//! A ceiling of the host or the user that gives the same errors.

use super::{Case, Rule};
use crate::finding::Finding;
use crate::lint::Severity;
use crate::{Class, forecast::Forecast};

pub(super) const RULE: Rule = Rule {
    id: "host-ceiling",
    severity: Severity::Warning,
    summary: "a ceiling of the host is near: open files, ptys, inotify, tasks",
    cwe: Some(770),
    requirement: "R9",
    check,
};

/// The ceilings, the class that fills each, and where it is set.
const CEILINGS: &[(&str, Option<Class>, &str)] = &[
    ("system-files", None, "fs.file-max"),
    ("ptys", Some(Class::PtyMaster), "kernel.pty.max"),
    (
        "inotify-instances",
        Some(Class::Inotify),
        "fs.inotify.max_user_instances",
    ),
    (
        "inotify-watches",
        Some(Class::Inotify),
        "fs.inotify.max_user_watches",
    ),
    (
        "tasks",
        Some(Class::Pidfd),
        "kernel.threads-max and kernel.pid_max",
    ),
];

fn check(case: &Case<'_>) -> Vec<Finding> {
    let near = CEILINGS.iter().filter_map(|(name, class, setting)| {
        let wall = case.wall(name)?;
        let severity = case.settings.levels.judge(wall.percent, None)?;
        Some(found(case, wall, severity, (class.clone(), setting)))
    });
    near.collect()
}

fn found(
    case: &Case<'_>,
    wall: &Forecast,
    severity: Severity,
    (class, setting): (Option<Class>, &str),
) -> Finding {
    let used = wall.used.unwrap_or(0);
    // Others may have filled it: then it is news for this process, not its fault.
    let own = class
        .clone()
        .map(|class| case.timeline.count_of(|held, _| *held == class));
    let severity = if own == Some(0) {
        Severity::Info
    } else {
        severity
    };
    Finding {
        class: class.or_else(|| case.largest_class()),
        count: own,
        why: format!(
            "{}: {used} of {} are used on this host ({} %), by all processes together",
            wall.name,
            wall.at,
            wall.percent.unwrap_or(0.0),
        ),
        next_step: format!("find who uses most of it; the ceiling is set by {setting}"),
        ..case.finding(&RULE, severity)
    }
}
